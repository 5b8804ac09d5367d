"""What a process keeps from one commit to the next, when it changed meanwhile: names, nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.groups import admin
from logstore.engine.runtime import identity
from logstore.engine.streams import add
from logstore.ids import ZERO_ID
from tests.support.processes import ForkedOnGo

ROWS = [{"n": str(number)} for number in range(250)]


def seen(group: Any, count: int = 10) -> list[int]:
    """The numbers of the entries that a read gives."""
    return [int(each.fields["n"]) for each in group.read("c", count=count)]


def open_store(path: Path) -> Any:
    return logstore.open(path, sync="os", background=False, encoding="utf-8")


def test_names_that_another_process_gave_to_others(tmp_path: Path) -> None:
    """Prevents: a stream, group or consumer taken for the one that had its name before."""
    path = tmp_path / "s"

    def work() -> None:
        with open_store(path) as store:
            store.drop("a")
            for name in ("b", "a"):
                stream = store.stream(name)
                for each in ("h", "g"):
                    group = stream.group(each, start="0")
                    group.add_consumer("d")
                    group.add_consumer("c")
                stream.add({"n": "7" if name == "a" else "8"})

    other = ForkedOnGo(work)
    with open_store(path) as store:
        stream = store.stream("a")
        group = stream.group("g", start="0")
        stream.add_many(ROWS[:5])
        assert seen(group, 2) == [0, 1]
        other.go()
        assert seen(group) == [7]
        assert group.pending().consumers == {"c": 1}
        assert stream.group("h").pending().count == 0
        assert len(stream) == len(store.stream("b")) == 1


def test_names_of_a_commit_that_was_taken_back(tmp_path: Path) -> None:
    """Prevents: a number that went to another name taken for the one that was never written."""

    def half(state: Any) -> None:
        record = add.create(state, b"x")
        admin.create(state, b"x", b"g", ZERO_ID)
        found = state.groups.named(record.number, b"g")
        admin.consumer(state, found, b"c")
        raise ValueError("on purpose")

    with open_store(tmp_path / "s") as store:
        with pytest.raises(ValueError, match="on purpose"):
            store._opened.commit(half, None)
        other, again = (store.stream(name) for name in ("y", "x"))
        other.add({"n": "1"})
        other.group("h", start="0").add_consumer("d")
        assert len(again) == 0
        group = again.group("g", start="0")
        again.add({"n": "2"})
        assert seen(group) == [2]
        assert [each.fields["n"] for each in other.range()] == ["1"]
        assert [each.name for each in other.group("h").consumers()] == ["d"]


def delete_some(stream: Any) -> None:
    """Entries of the node that is being read, a few behind what was read."""
    found = list(stream.range())
    stream.delete(*[each.id for each in found if int(each.fields["n"]) in (10, 12, 13)])


CHANGES: dict[str, tuple[Callable[[Any], object], list[int]]] = {
    "delete": (delete_some, [11, 14, 15]),
    "trim": (lambda stream: stream.trim(max_entries=130, approximate=False), [120, 121, 122]),
    "trim a node": (lambda stream: stream.trim(max_entries=150, approximate=True), [100, 101, 102]),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("looks", ["now and then", "each time"])
def test_a_node_that_changed_while_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, where: str, looks: str
) -> None:
    """Prevents: entries delivered that were deleted since the node was read last. Where the files
    are looked at each time, the lane takes in what others did, and leaves the read to the pipeline,
    which had read the node before that."""
    if looks == "each time":
        monkeypatch.setattr(identity, "LOOK_NS", 1)
    path = tmp_path / "s"
    change, expected = CHANGES[what]

    def work() -> None:
        with open_store(path) as store:
            change(store.stream("s"))

    other = None if where == "here" else ForkedOnGo(work)
    with open_store(path) as store:
        stream = store.stream("s")
        group = stream.group("g", start="0")
        stream.add_many(ROWS)
        assert seen(group) == list(range(10))
        if other is None:
            change(stream)
        else:
            other.go()
        assert seen(group, 3) == expected
        assert seen(group, 1000) == list(range(expected[-1] + 1, 250))


def test_reads_through_compaction(tmp_path: Path) -> None:
    """Prevents: a node rewritten by compaction that is read from where it stood before."""
    chance = random.Random(5)
    with open_store(tmp_path / "s") as store:
        stream = store.stream("s")
        group = stream.group("g", start="0")
        ids = list(stream.add_many(ROWS))
        alive = set(range(250))
        got: list[int] = []
        while part := seen(group, 7):
            got += part
            later = [each for each in alive if each > part[-1]]
            gone = chance.sample(later, min(3, len(later)))
            stream.delete(*[ids[each] for each in gone])
            alive -= set(gone)
            store.compact(purge=True)
        assert got == sorted(alive)


def test_a_group_with_nothing_pending_is_no_group_with_runs(tmp_path: Path) -> None:
    """Prevents: runs that are passed over, because all that was pending was acked once."""
    with open_store(tmp_path / "s") as store:
        stream = store.stream("a")
        stream.add_many(ROWS)
        group, beside = (stream.group(name, start="0") for name in "gh")
        first = group.read("c", count=1)[0]
        assert first.ack()
        assert not first.ack()
        taken = [each.id for each in group.read("c", count=200)]  # in two runs
        assert group.ack(*taken[:130]) == 130  # the first of them goes, and not the last
        assert group.ack(taken[0], taken[150], taken[199]) == 2
        assert beside.ack(taken[0]) == 0
        assert len(beside.read("c", count=2)) == 2
        assert group.nack(*taken[130:]) == 68
        assert group.ack(*taken) == 68
        assert group.pending().count == 0
        assert beside.pending().count == 2
        assert len(group.read("d", count=3)) == 3
        last = [each.id for each in group.read("c", count=1)]
        assert group.claim("c", *last, min_idle=0)[0].id == last[0]
        assert group.ack(*[each.id for each in group.pending_entries()]) == 4
        assert group.ack(*last) == 0
