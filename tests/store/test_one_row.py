"""The short way of an add of one row leaves exactly the bytes that the long way leaves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logstore
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import add


class Ticking:
    """A clock that goes one millisecond with each third look, and back once."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        self.looks += 1
        return 1_700_000_000_000 + (self.looks // 3 if self.looks % 50 else 0)


def workload(path: Path, seed: int, **limits: int) -> tuple[list[bytes], list[tuple[bytes, ...]]]:
    """The frames and the index rows after some hundred adds, deletes and trims."""
    rnd = random.Random(seed)
    with logstore.open(path, clock=Ticking(), background=False, **limits) as store:
        for _ in range(400):
            stream = store.stream(rnd.choice(["a", "b"]))
            what = rnd.random()
            if what < 0.85:
                size = rnd.choice([0, 3, 60, 60, 900, 5000])
                fields = [(rnd.choice("xy"), "v" * rnd.randrange(size + 1))] * rnd.randrange(1, 3)
                stream.add(fields, maxlen=rnd.choice([None, None, None, 40]))
            elif what < 0.95:
                found = stream.last_id if stream.name in store else None
                if found is not None:
                    stream.delete(found)
            else:
                stream.trim(maxlen=rnd.randrange(3), approximate=False)

        def rows(view: Snapshot) -> list[tuple[bytes, ...]]:
            txn = view.index.txn
            databases = (view.index.generation.main, view.index.generation.nodes)
            return [(key, bytes(value)) for each in databases for key, value in txn.cursor(db=each)
                    if key[:1] < b"\x20"]  # fmt: skip

        found_rows = snapshot.read(store._engine(), rows)
    return [segment.read_bytes()[64:] for segment in sorted(path.glob("log/*.log"))], found_rows


@pytest.mark.parametrize("limits", [{}, {"node_max_bytes": 0, "node_max_entries": 0},
                                    {"node_max_entries": 3}, {"node_max_bytes": 300}])  # fmt: skip
def test_short_and_long_way_write_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    monkeypatch.setattr("logstore.log.storefile.new_uuid", lambda: bytes(16))
    taken: list[bool] = []
    short = add._add_one

    def counted(*arguments: object) -> bool:
        taken.append(short(*arguments))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(add, "_add_one", counted)
    one = workload(tmp_path / "short", 7, **limits)
    monkeypatch.setattr(add, "_add_one", lambda *_: False)
    other = workload(tmp_path / "long", 7, **limits)
    assert one == other
    assert taken.count(True) > 100, "the short way was hardly taken"
