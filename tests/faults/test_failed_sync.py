"""Prevents a store whose sync, open or index failed from going on as if it were sound."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.errors import CommittedError, FileSystemError, StoreFailedError
from logstore.recovery.check import check
from tests import figures
from tests.faults.layer import KINDS, Faults, Kind, faulty
from tests.support import inside
from tests.support.failing_files import FailingFileSystem
from tests.support.processes import Program
from tests.support.watched_files import in_place

OTHER = """
import json, sys
import logstore

def told(work):
    try:
        return ["done", work()]
    except logstore.Error as exc:
        return [type(exc).__name__, str(exc), exc.segment, exc.offset]

path, before = sys.argv[1], sys.argv[2] == "before"
store = logstore.open(path, background=False, sync="always") if before else None
print("ready", flush=True)
sys.stdin.readline()
store = store or logstore.open(path, background=False, sync="always")
stream = store.stream("a")
group = stream.group("g")
print(json.dumps({
    "add": told(lambda: str(stream.add({"v": "other"}))),
    "delete": told(lambda: stream.delete("1-1")),
    "ack": told(lambda: group.ack("1-1")),
    "group": told(lambda: len(group.read("me", count=1))),
    "sync": told(store.sync),
    "checkpoint": told(store.checkpoint),
    "compact": told(lambda: str(store.compact())),
    "read": [str(entry.id) for entry in stream],
}), flush=True)
sys.stdin.readline()
store.close()
"""


class OtherProcess:
    """Another process with the store."""

    def __init__(self, path: Path, when: str) -> None:
        self._program = Program(OTHER, path, when)
        assert self._program.answer() == "ready"

    def go_on(self) -> None:
        """Past the next wait."""
        self._program.send()

    def answers(self) -> dict[str, list[object]]:
        """What it was told when it tried everything."""
        found: dict[str, list[object]] = json.loads(self._program.ask())
        return found

    def end(self) -> None:
        """It closes the store."""
        self._program.end("\n")
        assert self._program.exit_code == 0


@pytest.fixture
def failing() -> Iterator[FailingFileSystem]:
    """A disk whose next sync can be made to fail."""
    with in_place(FailingFileSystem(errno.EIO, only=("sync",))) as twin:
        assert isinstance(twin, FailingFileSystem)
        yield twin


def fail_next_sync(twin: FailingFileSystem) -> None:
    """From here on one sync fails."""
    twin.at = twin.operations + 1


def test_every_process_is_told(tmp_path: Path, failing: FailingFileSystem) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False, sync="always") as store:
        store.stream("a").add({"v": b"1"}, id="1-1")
        store.stream("a").group("g").create("0")
        store.stream("a").group("g").read("me", count=1)
        durable = fmt.position_parts(store._engine().wake.durable_upto)
        early = OtherProcess(path, "before")
        fail_next_sync(failing)
        with pytest.raises(CommittedError, match="opened again"):
            store.stream("a").add({"v": b"2"}, id="2-1")
        late = OtherProcess(path, "after")
        for found in (early.answers(), late.answers()):
            assert found.pop("read") == ["1-1"]
            for what, answer in found.items():
                assert answer[0] == "StoreFailedError", (what, answer)
                assert "open it again" in str(answer[1])
                assert "logstore recover" in str(answer[1])
                assert tuple(answer[2:]) == durable
        with pytest.raises(StoreFailedError) as told:
            store.sync()
        assert (told.value.segment, told.value.offset) == durable
        risk = recovered(path)["at_risk"]
        assert risk["streams"] == [{"stream": "a", "first": "2-1", "last": "2-1", "entries": 1}]
        early.end()
        late.end()
        with pytest.raises(StoreFailedError):
            store.stream("a").add({"v": b"3"}, id="3-1")
    with logstore.open(path, background=False, sync="always") as store:
        assert store.recovery["restated_segments"] == 1
        assert [str(entry.id) for entry in store.stream("a")] == ["1-1", "2-1"]
        store.stream("a").add({"v": b"3"}, id="3-1")
    assert recovered(path)["at_risk"] is None
    assert check(path).as_dict()["clean"]


def recovered(path: Path) -> dict[str, Any]:
    """What ``logstore recover`` says."""
    done = subprocess.run(
        [sys.executable, "-m", "logstore.tools.cli", "recover", "--json", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def place(position: int) -> dict[str, int]:
    """As it is told."""
    segment, offset = fmt.position_parts(position)
    return {"segment": segment, "offset": offset}


@pytest.mark.parametrize("sync", ["everysec", "os"] if figures.times() > 1 else ["everysec"])
def test_recover_names_the_exact_range(
    tmp_path: Path, failing: FailingFileSystem, sync: logstore.options.Sync
) -> None:
    """Stream, IDs and positions of all that was acknowledged since the last sync, and no more."""
    path = tmp_path / "store"
    limits = {"node_max_entries": 4}
    with logstore.open(path, background=False, sync=sync, **limits) as store:  # type: ignore[arg-type]
        for n in range(1, 7):
            store.stream("a").add({"v": f"durable {n}"}, id=f"{n}-5")
        store.stream("quiet").add({"v": "durable"}, id="1-1")
        store.stream("d").add_many([(f"{n}-0", {"v": "durable"}) for n in range(1, 6)])
        store.stream("a").group("g").create("0")
        store.sync()
        start = store._engine().wake.durable_upto
        for n in range(7, 12):  # over the end of the open node, and of another one
            store.stream("a").add({"v": f"at risk {n}"}, id=f"{n}-3")
        store.stream("b").add_many([(f"{n}-{n}", {"w": str(n)}) for n in range(20, 31)])
        store.stream("a").add_many([(f"40-{n}", {"v": "more"}) for n in range(9)])
        store.stream("c").add({"v": "x" * 9000}, id="5-5")
        store.stream("c").delete("5-5")
        store.stream("d").delete("2-0", "3-0", "5-0")  # what is left of its first node opens again
        store.stream("d").add({"v": "at risk"}, id="6-0")
        store.stream("a").group("g").read("me", count=2)
        end = store._engine().wake.applied
        fail_next_sync(failing)
        with pytest.raises(StoreFailedError, match="open it again") as told:
            store.sync()
        assert (told.value.segment, told.value.offset) == fmt.position_parts(start)
        for _ in range(2):  # also when it is asked for while the store is open
            risk = recovered(path)["at_risk"]
            assert isinstance(risk, dict)
            assert risk["streams"] == [
                {"stream": "a", "first": "7-3", "last": "40-8", "entries": 14},
                {"stream": "b", "first": "20-20", "last": "30-30", "entries": 11},
                {"stream": "c", "first": "5-5", "last": "5-5", "entries": 1},
                {"stream": "d", "first": "6-0", "last": "6-0", "entries": 1},
            ]
            assert risk["from"] == place(start)
            assert risk["to"] == place(end)
            assert risk["commits"] == 12
            assert risk["frames"]["deliver"] == 1
            store.close()
    with logstore.open(path, background=False) as store:
        assert not store.recovery["restated_segments"], "recover had written it anew already"
        assert len(store.stream("a")) == 20
        assert len(store.stream("b")) == 11
        assert store.stream("a").group("g").pending().count == 2
    assert check(path).as_dict()["clean"]


def test_old_entries_of_a_node_that_is_stated_again_are_not_at_risk(
    tmp_path: Path, failing: FailingFileSystem
) -> None:
    """A frame that states an open node anew repeats what is durable; only the new ones count."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, sync="os", node_max_bytes=1 << 17) as store:
        large, again = store.stream("large"), store.stream("sealed")
        for n in range(3):
            large.add({"v": "x" * 20_000}, id=f"{n}-1")
        again.add({"v": "x" * 100_000}, id="1-0")
        again.add({"v": "x" * 60_000}, id="2-0")  # the node before is sealed
        again.delete("2-0")
        store.sync()
        large.add({"v": "x" * 10_000}, id="3-1")  # stated whole, with one that is new
        again.add({"v": "y"}, id="3-0")  # what was sealed is open again
        fail_next_sync(failing)
        with pytest.raises(StoreFailedError):
            store.sync()
        risk = recovered(path)["at_risk"]
        assert risk["frames"] == {"append": 1, "open": 2}
        assert risk["streams"] == [
            {"stream": "large", "first": "3-1", "last": "3-1", "entries": 1},
            {"stream": "sealed", "first": "3-0", "last": "3-0", "entries": 1},
        ]


@pytest.mark.parametrize("call", ["index: begin", "index: begin reading"])
def test_an_opening_that_failed_can_be_tried_again(tmp_path: Path, call: str) -> None:
    """Also while the error of the first try is kept."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": "x"}, id="1-0")
    with faulty() as faults:
        faults.counting = True
        logstore.open(path, background=False).close()
        faults.at = faults.met.index(call) + 1
        for nth in range(len(KINDS[call])):
            faults.met.clear()
            faults.nth = nth
            with pytest.raises(FileSystemError) as kept:
                logstore.open(path, background=False)
            faults.counting = False
            with logstore.open(path, background=False) as store:
                assert store.recovery["index_trusted"]
                assert [str(entry.id) for entry in store.stream("a")] == ["1-0"]
            faults.counting = True
            assert kept.value.__traceback__ is not None
    (data,) = (path / "index").rglob("data.mdb")
    assert str(data) not in Path("/proc/self/maps").read_text()


class InARow:
    """The commit of the index fails, and the next calls of LMDB that write."""

    def __init__(self, faults: Faults, most: int) -> None:
        self.left, self._faults = most, faults

    def __call__(self, what: str, where: object) -> Kind | None:
        if not self._faults.counting or not self.left:
            return None
        if what not in {"index: commit", "index: begin"} or (what, self.hits) == INNOCENT:
            return None
        self.left -= 1
        self._faults.met.append(what)
        return KINDS[what][-1]

    @property
    def hits(self) -> int:
        """How many failed so far."""
        return len(self._faults.met)


INNOCENT = ("index: begin", 0)  # of the operation itself: nothing has happened yet


@pytest.mark.parametrize("sync", ["os", "always"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_failed_commit_is_made_good_by_a_later_call(
    tmp_path: Path,
    failures: int,
    sync: logstore.options.Sync,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same call, or by the next."""
    inside.let_lag(monkeypatch, 0)  # each add writes the index
    path = tmp_path / "store"
    with faulty() as faults, logstore.open(path, background=False, sync=sync) as store:
        stream = store.stream("a")
        stream.add({"v": "1"}, id="1-0")
        stream.group("g").create("0")
        faults.fault = InARow(faults, failures)  # type: ignore[method-assign]
        faults.counting = True
        if failures == 1:
            stream.add({"v": "2"}, id="2-0")
        else:
            with pytest.raises(CommittedError, match="do not repeat"):
                stream.add({"v": "2"}, id="2-0")
            assert [str(entry.id) for entry in stream] == ["1-0"], "it was shown unsettled"
        if failures == 3:
            with pytest.raises(logstore.FileSystemError) as told:
                stream.delete("1-0")
            assert not isinstance(told.value, CommittedError)
        assert len(faults.met) == failures
        assert stream.delete("1-0") == 1
        assert [str(entry.id) for entry in stream] == ["2-0"]
        assert len(stream.group("g").read("me")) == 1
        assert stream.info().entries_added == 2
    for _ in range(2):
        with logstore.open(path, background=False) as store:
            assert [str(entry.id) for entry in store.stream("a")] == ["2-0"]
            assert store.stream("a").group("g").pending().count == 1
    assert check(path).as_dict()["clean"]
