"""Workloads that begin with what a crash left: recovery itself is cut. And an upgrade."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.errors import CommittedError, FileSystemError
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery import index_validity
from tests.crash.states import store_content
from tests.crash.states.explore import SAME, State, states
from tests.crash.states.judge import Judge, Verdict, lay_out
from tests.crash.states.model import value
from tests.crash.states.recording import BOOT_ID, BORN_NS, MOUNT, STORE, recording
from tests.crash.states.scripts import COMPACT, PURGE, REOPEN, SYNC, add, batch, delete
from tests.crash.states.steps import COMMIT, COMPACTION, ROLL
from tests.crash.states.workload import LIMITS, Begun, Session, Workload, forget, record
from tests.golden.store_v1.generate import CONTENT, content
from tests.golden.store_v1.generate import STORE as GOLDEN
from tests.support.inside import FixedClock

LEFT = Workload("what is left", (
    batch("a", 1, 6), add("b", 7), delete("a", 2), add("a", 8, 30_000), add("a", 9, 30_000),
    batch("b", 10, 8, 900), add("c", 18),
))  # fmt: skip
AFTER = (add("d", 90), add("d", 91, 40_000), add("d", 92, 40_000), REOPEN, delete("d", 90))


# Commits of one length: were a lost one cut off and written anew, the whole one behind it would
# come back to life with the old bytes.
HOLE = Workload("a hole", (
    add("a", 1, 900), SYNC, add("a", 2, 900), add("a", 3, 900),
), "everysec")  # fmt: skip
SAME_LENGTH = (add("a", 4, 900), add("a", 5, 900), REOPEN, add("a", 6, 900))
CUT_OFF = Workload("a compaction", (
    batch("a", 1, 8, 2000), delete("a", 1, 2, 5), add("b", 9, 40_000), add("b", 10), COMPACT,
))  # fmt: skip
AGAIN = (COMPACT, add("d", 90), PURGE)


def left_by(
    fits: Callable[[State], bool], became: Callable[[Verdict], bool], by: Workload = LEFT
) -> Any:
    """Begin with the first state of a workload that fits, and became what is wanted."""

    def begin(path: Path) -> Begun:
        scratch = Path(tempfile.mkdtemp(dir=path.parent.parent.parent))
        run = record(by, scratch)
        judge = Judge(scratch)
        try:
            with judge.sitting():
                for state in states(run, "0", 60 if by is HOLE else 6):
                    if fits(state) and became(verdict := judge.judge(run, state, state.digest())):
                        _put(path, state)
                        return Begun(run.contents[verdict.steps])
            raise AssertionError("no state is like that")
        finally:
            shutil.rmtree(scratch)

    return begin


def _put(path: Path, state: State) -> None:
    shutil.rmtree(path.parent)
    lay_out(path.parent.parent, state)
    known = index_validity.read_marker(LOCAL, path)
    if state.boot == SAME and known is not None:  # its index stays the one that it was
        found = (path / file_names.INDEX / str(known.generation) / "data.mdb").stat()
        here = index_validity.Identity(BOOT_ID, MOUNT, found.st_dev, found.st_ino, BORN_NS)
        index_validity.write_marker(LOCAL, path, known._replace(identity=here))


def failed_sync(path: Path) -> Begun:
    """A commit whose sync failed: it can be read, and nobody was told that it is there."""
    with recording(path.parent.parent) as recorder:
        session = Session(path, "always")
        session.open()
        try:
            session.store.stream("a").add({"v": b"1"}, id="1-1")
            session.store.stream("a").add({"v": b"2" * 9000}, id="2-1")
            before = session.content()
            segment = file_names.segment(path, 1)
            durable = segment.read_bytes()

            def fail(kind: str, where: Path) -> None:
                if kind == "sync" and where.suffix == ".log":
                    recorder.failing = None
                    raise FileSystemError("syncing failed: Input/output error")

            recorder.failing = fail
            with pytest.raises(CommittedError):
                session.store.stream("a").add({"v": b"3" * 3000}, id="3-1")
        finally:
            session.store.close()
    copy = path.with_name("copy")
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("index", "WAKE"))
    store = logstore.open(copy, background=False, clock=FixedClock())
    after = store_content.content(store, FixedClock())
    store.close()
    shutil.rmtree(copy)
    shutil.rmtree(path / file_names.INDEX / "1")
    assert len(after["a"]["rows"]) == 3
    return Begun(after, before, {f"{STORE}/{segment.relative_to(path)}": durable})


def of_format_1(path: Path) -> Begun:
    """The golden store of the format before."""
    shutil.copytree(GOLDEN, path)
    clock = FixedClock()
    with logstore.open(path, readonly=True, background=False, clock=clock) as store:
        assert content(store) == json.loads(CONTENT.read_text(encoding="utf-8"))
        assert store.info().format_version == 1 < fmt.FORMAT_VERSION
        return Begun(store_content.content(store, clock))


def _killed(protocol: str, doing: str, how: str) -> Callable[[State], bool]:
    def fits(state: State) -> bool:
        step = state.step
        return (step.protocol, step.doing) == (protocol, doing) and state.how.startswith(how)

    return fits


def _hole(state: State) -> bool:
    """The second add lost a block, the third is whole."""
    data = state.image.get(f"{STORE}/log/{1:020d}.log") or b""
    return _power_cut(state) and value(3, 900) in data and value(2, 900) not in data


def _power_cut(state: State) -> bool:
    return state.how.startswith("power cut")


WORKLOADS = (
    Workload("recovery of a torn commit", AFTER, begin=left_by(
        _killed(COMMIT, "write segment", "killed after 1"), lambda found: found.torn_bytes > 500)),
    Workload("recovery of a torn tail", AFTER, begin=left_by(
        _power_cut, lambda found: found.torn_bytes > 0 and not found.voided and found.steps > 3)),
    Workload("recovery that makes a commit void", AFTER, begin=left_by(
        _power_cut, lambda found: found.voided)),
    Workload("recovery of a hole", SAME_LENGTH, begin=left_by(
        _hole, lambda found: found.torn_bytes > 1800, HOLE)),
    Workload("recovery that ends a roll", AFTER, begin=left_by(
        _killed(ROLL, "rename to segment", "killed"), lambda found: found.trusted)),
    Workload("recovery that ends a roll, no index", AFTER, begin=left_by(
        _killed(ROLL, "rename to segment", "nothing"), lambda found: True)),
    Workload("recovery that ends a commit", AFTER, begin=left_by(
        _killed(COMMIT, "sync segment", "killed"), lambda found: found.finished > 0)),
    Workload("compaction after one that was cut off as it wrote", AGAIN, begin=left_by(
        _killed(COMPACTION, "write segment", "killed after"), lambda found: True, CUT_OFF)),
    Workload("compaction after one that was cut off as it dropped", AGAIN, begin=left_by(
        _killed(COMPACTION, "remove segment", "nothing"), lambda found: True, CUT_OFF)),
    Workload("recovery after a failed sync", AFTER, begin=failed_sync),
    Workload("upgrade", (add("d", 90), REOPEN, add("d", 91)), begin=of_format_1),
)  # fmt: skip
__all__ = ["LIMITS", "WORKLOADS", "forget"]
