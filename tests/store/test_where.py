"""Prevents entries that match and are not given, others in their place, and follows that stop."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import CorruptionError, EntryTypeError, InvalidEntryError, OptionError
from logstore.api.entry_reads import Following
from logstore.api.store import Store
from logstore.scan import sift
from tests.store.conftest import OpenStore

LONG_S = 60.0


def ids(entries: Any) -> list[int]:
    """The milliseconds of entries."""
    return [entry.id.ms for entry in entries]


def filled(store: Store[Any], rng: random.Random, count: int = 700) -> dict[int, dict[str, str]]:
    """A stream of many small nodes with rare values, and gaps; what is in it by ID."""
    rows: dict[int, dict[str, str]] = {}
    for n in range(1, count + 1):
        level = "error" if rng.random() < 0.02 else "info"
        rows[n] = {"level": level, "n": str(n % 7)} if n % 11 else {"note": level}
    store["s"].add_many((f"{n}-0", row) for n, row in rows.items())
    for n in rng.sample(sorted(rows), 60):
        store["s"].delete(f"{n}-0")
        del rows[n]
    return rows


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("nodes_max", [1, 3, 1000])
def test_a_range_gives_what_a_filter_over_all_entries_gives(
    open_store: OpenStore, reverse: bool, nodes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many batches, most of which hold nothing that matches."""
    monkeypatch.setattr(sift, "NODES_MIN", min(nodes_max, sift.NODES_MIN))
    monkeypatch.setattr(sift, "NODES_MAX", nodes_max)
    rng = random.Random(5)
    with open_store(node_max_entries=5) as store:
        rows = filled(store, rng)
        for where in ({"level": "error"}, {"level": "error", "n": 3}, {"note": b"error"},
                      {"level": "none"}, {"other": "error"}, {"n": "3"}):  # fmt: skip
            wanted = {key: value if isinstance(value, str) else (
                value.decode() if isinstance(value, bytes) else str(value)
            ) for key, value in where.items()}  # fmt: skip
            for low, high in ((1, 700), (40, 660), (300, 310)):
                expected = [
                    n
                    for n, row in rows.items()
                    if low <= n <= high and wanted.items() <= row.items()
                ]
                if reverse:
                    expected.reverse()
                for count in (None, 1, 2):
                    found = store["s"].range(
                        f"{low}", f"{high}", where=where, count=count, reverse=reverse
                    )
                    assert ids(found) == expected[:count], (where, low, high, count)


def test_equal_is_what_an_add_stores_as_the_same_bytes(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="latin-1", background=False) as store:
        stream = store["s"]
        stream.add([("a", 5), ("a", 6), ("b", "ü")], "1-0")
        stream.add({"a": "5", "b": 0.5}, "2-0")
        stream.add({"a": b"05"}, "3-0")
        for where, found in (
            ({"a": 5}, [2]), ({"a": 6}, [1]), ({"a": "05"}, [3]), ({"b": "ü"}, [1]),
            ({b"b": b"\xfc"}, [1]), ({"b": 0.5}, [2]), ({"a": 5.0}, []),
        ):  # fmt: skip
            assert ids(stream.range(where=where)) == found, where
        entry = next(stream.range(where={"b": "ü"}))
        assert (entry["b"], entry["a"], entry.id) == ("ü", "6", (1, 0))
        coded = store.stream("c", codec="json")
        coded.add({"ok": True, "tags": ["x", 1]}, "1-0")
        coded.add({"ok": None, "tags": []}, "2-0")
        assert ids(coded.range(where={"ok": True})) == [1]
        assert ids(coded.range(where={"ok": None, "tags": []})) == [2]
        assert next(coded.follow("0", where={"tags": ["x", 1]}, timeout=0))["ok"] is True


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ({}, OptionError), ("level=error", OptionError), ([("level", "error")], OptionError),
        (5, OptionError), ({"a": None}, EntryTypeError), ({5: [1]}, EntryTypeError),
        ({"a": True}, EntryTypeError), ({"\ud800": "a"}, InvalidEntryError),
    ],
)  # fmt: skip
def test_an_invalid_where_is_refused_at_the_call(
    store: Store[bytes], where: Any, error: type[Exception]
) -> None:
    for call in (store["s"].range, store["s"].follow, lambda **given: store.follow(["s"], **given)):
        with pytest.raises(error, match="where"):
            call(where=where)
    assert list(store["s"].range(where={"a": "b"})) == []


def test_a_follow_waits_for_what_matches_and_looks_at_nothing_twice(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.add_many((f"{n}-0", {"level": "info"}) for n in range(1, 30))
    stream.add({"level": "error"}, "30-0")
    stream.add({"level": "info"}, "31-0")
    where = {"level": "error"}
    assert ids(stream.follow("+", where=where, timeout=0)) == [30]
    assert ids(stream.follow("0", where=where, timeout=0, count=1)) == [30]
    assert ids(stream.follow(where=where, timeout=0.01)) == []
    following = store.follow(["s", "t"], where=where, timeout=LONG_S)

    def add() -> None:
        for n in range(40, 60):
            stream.add({"level": "info"}, f"{n}-0")
        store["t"].add({"level": "error"}, "61-0")
        stream.add({"level": "error"}, "62-0")

    adding = threading.Thread(target=add)
    adding.start()
    assert [(name, entry.id.ms) for name, entry in (next(following), next(following))] == [
        (b"t", 61), (b"s", 62),
    ]  # fmt: skip
    adding.join()
    follow = stream.follow(where=where, timeout=LONG_S)
    stream.add_many((f"{n}-0", {"level": "info"}) for n in range(70, 1200))
    stream.add({"level": "error"}, "1200-0")
    assert next(follow).id == (1200, 0)


def test_follow_does_not_read_unmatched_entries_again(store: Store[bytes]) -> None:
    stream = store["s"]
    where = stream._matching({"level": "error"})
    following = Following(stream._opened, {b"s": "0"}, 2, where)
    assert following.look() == []
    stream.add_many((f"{n}-0", {"level": "info" if n % 9 else "error"}) for n in range(1, 36))
    assert [entry.id.ms for _, entry in following.look()] == [9, 18]
    assert following._above == {b"s": (18, 0)}
    assert [entry.id.ms for _, entry in following.look()] == [27]
    assert following._above == {b"s": (35, 0)}


def test_the_asyncio_face(tmp_path: Path) -> None:
    async def first(entries: AsyncIterator[Any]) -> Any:
        async for each in entries:
            return each
        return None

    async def main() -> None:
        where = {"level": "error"}
        async with logstore.aio.open(tmp_path / "s") as store, asyncio.timeout(LONG_S):
            stream = store["s"]
            await stream.add_many(
                (f"{n}-0", {"level": "info" if n % 50 else "error"}) for n in range(1, 201)
            )
            found = [each.id.ms async for each in stream.range(where=where, reverse=True)]
            assert found == [200, 150, 100, 50]
            assert (await first(stream.follow("60-0", where=where))).id == (100, 0)
            text = "level = 'error' and ms > 60"
            assert [each.id.ms async for each in stream.range(where=text)] == [100, 150, 200]
            assert (await first(stream.follow("60-0", where=text))).id == (100, 0)
            assert (await first(store.follow({"s": "0"}, where=text)))[1].id == (100, 0)
            waiting = asyncio.create_task(first(store.follow({"s": "200-0"}, where=where)))
            await stream.add({"level": "info"}, "201-0")
            await stream.add({"level": "error"}, "202-0")
            assert (await waiting)[1].id == (202, 0)
            coded = store.stream("c", codec="json")
            await coded.add({"ok": True})
            assert (await first(coded.follow("0", where={"ok": True})))["ok"] is True
            with pytest.raises(OptionError, match="where"):
                store.follow(["s"], where={})
            with pytest.raises(OptionError, match="where"):
                store.follow(["s"], where="level = ")

    asyncio.run(main())


def test_a_node_that_is_damaged_is_told_whether_or_not_it_matches(tmp_path: Path) -> None:
    """A node is passed over only if it is sound."""
    path = tmp_path / "s"
    with logstore.open(path, sync="os", background=False, node_max_entries=5) as store:
        store["s"].add_many((f"{n}-0", {"text": f"needle-{n:03}-"}) for n in range(1, 101))
        (file,) = [
            each for each in path.rglob("*") if each.is_file() and b"-050-" in each.read_bytes()
        ]
        data = file.read_bytes()
        with file.open("r+b") as writing:
            writing.seek(data.index(b"-050-") + 1)
            writing.write(b"X")
        for text in ("needle-010-", "needle-050-", "other"):
            for reverse in (False, True):
                with pytest.raises(CorruptionError):
                    list(store["s"].range(where={"text": text}, reverse=reverse))
        assert ids(store["s"].range("1", "40", where={"text": "needle-010-"})) == [10]
        assert ids(store["s"].range("60", where={"text": "needle-090-"}, count=1)) == [90]
