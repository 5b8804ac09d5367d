"""Prevents the newest entry of a key from going, older ones from staying, and mixed up keys."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import EntryTypeError, OptionError
from logstore.api.store import Store
from logstore.engine.streams import latest_entries
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.model.groups import ID, Pairs
from tests.model.store import StoreModel


def opened(path: Path) -> Store[bytes]:
    """The store, with small nodes, that does nothing by itself."""
    return logstore.open(path, sync="os", background=False, node_max_entries=4)


def shown(store: Store[Any], name: str = "s") -> list[int]:
    """The milliseconds of all entries of a stream."""
    return [entry.id.ms for entry in store[name]]


def newest(store: Store[Any], key: object, name: str = "s") -> int | None:
    """The milliseconds of a key's newest entry."""
    found = store[name].latest(key)
    return None if found is None else found.id.ms


def fill(store: Store[Any], count: int = 40, keys: int = 5) -> None:
    """Entries 1 to ``count`` of keys by turns."""
    store["s"].configure(compact_by="k")
    store["s"].add_many((f"{n}-0", {"k": n % keys, "n": n}) for n in range(1, count + 1))


KEYS = (b"a", b"b", b"c", b"5", b"x" * 300)


class CompactStream:
    """A store with one stream that is kept compact, beside the model of it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.store = opened(path)
        self.store["s"].configure(compact_by="k")
        self.model = StoreModel(0)
        self.model.create(b"s")
        self.gone: set[bytes] = set()  # their newest entry was deleted: who knows what is older
        self.last = 0

    def newest(self, key: bytes) -> int | None:
        """The newest entry of a key."""
        found = self.model.newest(b"s", b"k", key)
        return None if found is None else found[0]

    @property
    def entries(self) -> dict[ID, Pairs]:
        """What there is."""
        return self.model.streams[b"s"].entries

    def add(self) -> None:
        """Entries with a key, with a field that repeats, and without."""
        for _ in range(self.rng.randint(2, 30)):
            self.last += 1
            key = self.rng.choice([None, *KEYS])
            row = [(b"n", b"1")] if key is None else [(b"k", b"other"), (b"n", b"1"), (b"k", key)]
            row = row[self.rng.randint(0, len(row) > 1) :]
            self.store["s"].add(row, f"{self.last}-0")
            self.model.add(b"s", tuple(row), (self.last, 0))
            self.gone.discard(key or b"")

    def delete(self) -> None:
        """One entry, perhaps the newest of its key."""
        if self.entries:
            id = self.rng.choice(sorted(self.entries))
            key = dict(self.entries[id]).get(b"k")
            if key is not None and id[0] == self.newest(key):
                self.gone.add(key)
            self.store["s"].delete(id)
            self.model.delete(b"s", [id])

    def keep(self) -> None:
        """What is replaced goes, and nothing else."""
        self.store.compact() if self.rng.random() < 0.3 else self.store.retain()
        there = set(shown(self.store))
        wanted = {id[0] for id, row in self.entries.items() if b"k" not in dict(row)}
        wanted |= {self.newest(key) or 0 for key in KEYS if key not in self.gone} - {0}
        assert wanted <= there
        assert there - wanted <= {self.newest(key) for key in self.gone}
        self.model.delete(b"s", [id for id in self.entries if id[0] not in there])

    def again(self) -> None:
        """Opened again, perhaps without the index."""
        if self.rng.random() < 0.5:
            self.store.checkpoint()
        self.store.close()
        if self.rng.random() < 0.7:
            shutil.rmtree(self.path / "index")
        self.store = opened(self.path)

    def look(self) -> None:
        """The newest entry of each key is found."""
        for key in KEYS:
            found = self.store["s"].latest(key)
            if found is not None or key not in self.gone:
                assert (None if found is None else found.id.ms) == self.newest(key), key
        assert self.store["s"].latest("other") is None


@pytest.mark.parametrize("seed", range(3))
def test_only_the_newest_entry_of_each_key_stays(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adds, deletes, lost indexes, checkpoints and compaction in between, at any time."""
    monkeypatch.setattr(latest_entries, "ENTRIES_A_COMMIT", 7)
    kept = CompactStream(tmp_path / "s", seed)
    steps = (kept.add, kept.add, kept.add, kept.delete, kept.keep, kept.again)
    for _ in range(60):
        kept.rng.choice(steps)()
        kept.look()
    kept.store.close()
    assert check(tmp_path / "s").index == compare.AGREES


def test_ids_that_are_given_again_are_not_taken_for_what_they_were(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store)
        assert store.retain() == 35
        store["s"].trim(max_entries=0, approximate=False)
        store["s"].set_id("36-0")
        store["s"].add({"k": "new"}, "40-0")
        assert [newest(store, key) for key in (0, "new")] == [None, 40]
        store["s"].add({"k": 0}, "41-0")
        assert store.retain() == 0
        assert shown(store) == [40, 41]
        assert [newest(store, key) for key in ("new", 0, 1)] == [40, 41, None]


def test_another_field_another_stream(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store)
        store.retain()
        assert shown(store) == [36, 37, 38, 39, 40]
        store["s"].configure(compact_by="other")
        assert (newest(store, 0), store.retain()) == (None, 0)
        store["s"].configure(compact_by="k")
        assert newest(store, 0) == 40
        store.retain()
        store.copy("s", "t")
        store.rename("s", "u")
        for name in ("u", "t"):
            store[name].configure(compact_by=b"k")
            store[name].add({"k": 0}, "50-0")
            assert newest(store, "0", name) == 50
        assert store.retain() == 2
        assert shown(store, "t") == shown(store, "u") == [36, 37, 38, 39, 50]
        store.drop("u")
        fill(store, 3, 3)
        assert (newest(store, 0), newest(store, 1)) == (3, 1)


def test_compact_by_leaves_pending_entries_pending(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store, 10)
        group = store["s"].group("g", "0")
        assert len(group.read("c", count=3)) == 3
        store.retain()
        assert len(list(group.pending_entries())) == 3
        assert [each.id.ms for each in group.read("c")] == [6, 7, 8, 9, 10]


def test_latest_refuses_invalid_keys_and_streams_without_compact_by(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        assert store["s"].latest("a") is None  # there is no stream
        store["s"].add({"k": "a"})
        with pytest.raises(OptionError, match=r"configure\(compact_by="):
            store["s"].latest("a")
        wrong: Any
        for wrong in (5, True, ["k"], b"x" * 65_537):
            with pytest.raises(OptionError, match="compact_by"):
                store["s"].configure(compact_by=wrong)
        store["s"].configure(compact_by="")
        store["s"].add_many([{"": "x"}, {"": "x"}])
        assert store.retain() == 1
        assert store["s"].configure(compact_by="k").compact_by == b"k"
        with pytest.raises(EntryTypeError, match="latest: field 'key'"):
            store["s"].latest(None)
        assert store["s"].configure(compact_by=None).compact_by is None
        assert store.retain() == 0
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as text:
        assert text["s"].configure(compact_by="k").compact_by == "k"
        assert text["s"].settings.compact_by == text["s"].info().settings.compact_by == "k"
        coded = text.stream("c", codec="json")
        coded.configure(compact_by="k")
        coded.add_many({"k": ["x", n % 2], "n": n} for n in range(6))
        for _ in range(2):
            found = coded.latest(["x", 1])
            assert found is not None
            assert found["n"] == 5
            text.retain()
        assert len(coded) == 2


def test_the_background_keeps_streams_compact(tmp_path: Path) -> None:
    async def main() -> None:
        async with logstore.aio.open(tmp_path / "s") as store, asyncio.timeout(60):
            stream = store["s"]
            await stream.configure(compact_by="k")
            await stream.add_many({"k": n % 3, "n": n} for n in range(2000))
            while (await stream.info()).length > 3:
                await asyncio.sleep(0.05)
            found = await stream.latest(1)
            assert found is not None
            assert found["n"] == b"1999"

    asyncio.run(main())
