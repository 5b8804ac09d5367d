"""Commits of the lane, recorded: it writes past the file-system layer, and is one call of C.

So what it did is told from what it left: the bytes that the segment has more, and the words of
WAKE, which are put back one after the other in the order in which the lane stores them. What the
index was while it followed, and before a commit that it follows at once, is recorded as it
happens. IDs and times are those of the system's clock, which the lane goes by; each step holds
what it found against what it expects.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.api import opening
from logstore.engine.commit import write_back
from logstore.engine.lane import lane as plain_lane
from logstore.engine.reading.reader_loading import node_cache, open_reader
from logstore.engine.runtime import identity
from logstore.engine.shm.commit_words import LogWords, Wake
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.options import Sync
from tests.crash.states import store_content
from tests.crash.states.disk import Event
from tests.crash.states.model import value
from tests.crash.states.recording import STORE, Index, Recorder
from tests.crash.states.scripts import CHECKPOINT, REOPEN, SYNC
from tests.crash.states.steps import LANE, LANE_STEPS, ProtocolStep
from tests.crash.states.store_content import Content
from tests.crash.states.workload import Do, Session, Workload
from tests.support import inside
from tests.support.inside import FixedClock

LOOK_MS = 4_000_000_000_000  # idle times are told from then on
LAG_COMMITS = 5
BEGIN, AT_ONCE = "begin a node", "be a node"  # the index lags behind the one, and not the other
KIND_AT = 28  # in a frame
OF_THE_INDEX = ("commit the index", "store where the index is")
STORES = {
    "store the commit's number": "commit",
    "store where its last frame is": "last_frame",
    "store the CRC of that": "last_crc",
    "store where the log ends": "applied",
    "store that none is in progress": "in_progress",
}


class SystemClock(FixedClock):
    """The system's, as the lane has it, but where the store is looked at."""

    def __init__(self) -> None:
        super().__init__(0)

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return self.ms or time.time_ns() // 1_000_000


class LaneSession(Session):
    """A store in use by its lane, if it is recorded; else as any other."""

    def __init__(self, path: Path, sync: Sync) -> None:
        super().__init__(path, sync)
        self.clock = SystemClock()
        self.commits = dict.fromkeys(
            ("add", BEGIN, AT_ONCE, "delete", "read", "ack", "nack", "claim"), 0
        )
        self.ids: list[logstore.StreamID] = []  # of the entries of stream s, in order
        self.given: list[logstore.StreamID] = []  # that are pending in its group g
        self.held: list[Any] = []  # deliveries of these, and of others
        self.next = 0  # place of the entry that the group reads next
        self.last: logstore.StreamID | str = "0-0"  # of those that it was given

    def open(self) -> None:
        """Open it, and give it a lane."""
        super().open()
        recorder = opening.FILES[0]
        if isinstance(recorder, Recorder):
            RecordedLane(self, recorder)

    def content(self) -> Content:
        """All that it holds."""
        return store_content.content(self.store, self.clock, LOOK_MS)

    def agree(self, step: Do, found: Content) -> None:
        """What was added, and is pending, as the steps know it."""
        del step
        rows, group = found["s"]["rows"], found["s"]["groups"].get("g")
        assert [id for id, _ in rows] == [str(id) for id in self.ids]
        if group is not None:
            assert [row[0] for row in group["pending"]] == [str(id) for id in sorted(self.given)]
            assert group["last"] == str(self.last)


class RecordedPort(plain_lane.IndexPort):
    """Keeps what the index was before it committed at once, and what WAKE said of that."""

    recorder: Recorder
    before: Index | None = None
    indexed_upto: int
    in_order: bool  # its frames were in the log by then, and not published

    def prepare(self, framed: Any, ends: Any, *more: Any) -> Callable[[], object] | None:
        """As it does."""
        commit = super().prepare(framed, ends, *more)
        if commit is None:
            return None

        def recorded() -> None:
            wake = self._engine.wake
            number, offset = fmt.position_parts(ends[0])
            log = file_names.segment(self.recorder.store, number)
            self.in_order = log.stat().st_size == offset and wake.log().applied == framed[0][1]
            self.before, self.indexed_upto = self.recorder.index(), wake.indexed_upto
            commit()

        return recorded


class RecordedLane:
    """The lane of a store, each of its commits written down."""

    def __init__(self, session: LaneSession, recorder: Recorder) -> None:
        store, self.commits = session.store, session.commits
        self.engine, self._recorder = inside.engine_of(store), recorder
        self._port = RecordedPort(self.engine)
        self._port.recorder = recorder
        look_ns, identity.LOOK_NS = identity.LOOK_NS, 1 << 60
        module: Any = plain_lane
        port, module.IndexPort = plain_lane.IndexPort, lambda _: self._port
        try:
            self._lane = plain_lane.make(self.engine, inside.committer_of(store))
        finally:
            identity.LOOK_NS, module.IndexPort = look_ns, port
        store._live().lane = self  # type: ignore[assignment]
        # A delete asks it where an entry stands; it reads files as they are on the disk.
        engine = self.engine
        engine.reader = open_reader(
            engine.wake.memory, engine.seed, node_cache(), {},
            lambda number: LOCAL.open(file_names.segment(recorder.store, number)),
            engine.clock.now_ms,
        )  # fmt: skip

    def add(self, *args: Any) -> Any:
        """As the lane's."""
        return self._recorded("add", self._lane.add, args)

    def add_all(self, *args: Any) -> Any:
        """As the lane's."""
        return self._recorded("add", self._lane.add_all, args)

    def read(self, *args: Any) -> Any:
        """As the lane's."""
        return self._recorded("read", self._lane.read, args)

    def ack(self, *args: Any) -> Any:
        """As the lane's."""
        return self._recorded("ack", self._lane.ack, args)

    def delete(self, *args: Any) -> Any:
        """As the lane's."""
        return self._recorded("delete", self._lane.delete, args)

    def nack(self, *args: Any, **options: Any) -> Any:
        """As the lane's."""
        return self._recorded("nack", partial(self._lane.nack, **options), args)

    def claim(self, *args: Any, **options: Any) -> Any:
        """As the lane's."""
        return self._recorded("claim", partial(self._lane.claim, **options), args)

    def autoclaim(self, *args: Any, **options: Any) -> Any:
        """As the lane's."""
        return self._recorded("claim", partial(self._lane.autoclaim, **options), args)

    def read_history(self, *args: Any, **options: Any) -> Any:
        """As the lane's."""
        return self._recorded("claim", partial(self._lane.read_history, **options), args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    def _recorded(self, what: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        wake, path = self.engine.wake, self._recorder.store / file_names.WAKE
        before, image = wake.log(), path.read_bytes()
        durable, port = wake.durable_upto, self._port
        port.before = None
        found = call(*args)
        after = wake.log()
        if after.applied == before.applied:
            return found
        assert found is not None
        done, index = path.read_bytes(), self._recorder.index()
        number, offset = fmt.position_parts(before.applied)
        segment = file_names.segment(Path(STORE), number).as_posix()
        data = file_names.segment(self._recorder.store, number).read_bytes()
        data = data[offset : fmt.offset_of(after.applied)]
        laid = dict.fromkeys(LANE_STEPS, Event("mark", ""))
        laid["write segment"] = Event("write", segment, 0, offset, data)
        laid["sync segment"] = Event("sync", segment)
        if wake.durable_upto == durable:
            del laid["sync segment"]
        earlier, indexed_upto = index, wake.indexed_upto
        if port.before is None:
            for step in OF_THE_INDEX:
                del laid[step]
            if data[KIND_AT] in (fmt.Kind.CREATE, fmt.Kind.NODE):
                what = BEGIN
        else:
            what, earlier, indexed_upto = AT_ONCE, port.before, port.indexed_upto
            assert port.in_order, "the index committed before the append, or behind the publish"
        self.commits[what] += 1
        words = before._replace(in_progress=after.commit)
        images = {"begin": image, "let go of LOCK": done}
        for step, event in laid.items():
            if step == OF_THE_INDEX[1]:
                earlier = index
            if step not in images:
                images[step] = _with(done, words, indexed_upto)
            self._recorder.laid(event, ProtocolStep(LANE, what, step), images[step], earlier)
            if step == OF_THE_INDEX[1]:
                indexed_upto = wake.indexed_upto
            if name := STORES.get(step):
                words = words._replace(**{name: getattr(after, name)})
        return found


def lag_little(patch: pytest.MonkeyPatch) -> None:
    """The index follows now and then in a workload of some dozen commits."""
    patch.setattr(write_back, "INDEX_LAG_MAX_COMMITS", LAG_COMMITS)


def _with(image: bytes, words: LogWords, indexed_upto: int) -> bytes:
    """WAKE with other words of where the log stands, and the index."""
    wake = Wake(None, Path())
    wake.memory[:] = image
    wake.set_log(words)
    wake.indexed_upto = indexed_upto
    return bytes(wake.memory)


def add(n: int) -> Do:
    """One entry; the ID is given."""
    return Do(f"add {n}", lambda at: at.ids.append(at.store.stream("s").add({"v": value(n)})))


def alone(n: int) -> Do:
    """One that is a node by itself."""
    size = 5000
    return Do(f"add {n}", lambda at: at.ids.append(at.store.stream("s").add({"v": value(n, size)})))


def together(*ns: int) -> Do:
    """Entries in one transaction."""

    def do(at: LaneSession) -> None:
        with at.store.transaction() as tx:
            added = [tx.stream("s").add({"v": value(n)}) for n in ns]
        at.ids += [each.id for each in added]

    return Do(f"transaction {ns}", do)


def result(n: int, *places: int) -> Do:
    """An entry, and acks of some of those that are pending, in one transaction."""

    def do(at: LaneSession) -> None:
        ids = [at.given[place] for place in places]
        held = [each for each in at.held if each.id in ids]
        with at.store.transaction() as tx:
            added = tx.stream("s").add({"v": value(n)})
            tx.ack(*held)
        at.given = [id for id in at.given if id not in ids]
        at.ids.append(added.id)

    return Do(f"result {n} of {places}", do)


def delete(place: int) -> Do:
    """One entry, of a node that keeps others."""

    def do(at: LaneSession) -> None:
        at.next -= place < at.next
        assert at.store.stream("s").delete(at.ids.pop(place)) == 1

    return Do(f"delete {place}", do)


def read(count: int, who: str = "c") -> Do:
    """New entries for a consumer."""

    def do(at: LaneSession) -> None:
        found = at.store.stream("s").group("g").read(who, count=count)
        assert [each.id for each in found] == at.ids[at.next : at.next + count]
        at.given += [each.id for each in found]
        at.held += found
        at.next += len(found)
        at.last = found[-1].id

    return Do(f"read {count}", do)


def ack(*places: int) -> Do:
    """Some of those that are pending."""

    def do(at: LaneSession) -> None:
        ids = [at.given[place] for place in places]
        assert at.store.stream("s").group("g").ack(*ids) == len(ids)
        at.given = [id for id in at.given if id not in ids]

    return Do(f"ack {places}", do)


def _group(at: LaneSession) -> Any:
    return at.store.stream("s").group("g")


def _take(at: LaneSession) -> None:
    """What is gone by then is acked in the same commit."""
    wanted = at.given[:2]
    there = {each.id for each in _group(at).claim("c", *wanted, min_idle=0)}
    assert there == {id for id in wanted if id in at.ids}
    at.given = [id for id in at.given if id in there or id not in wanted]


def _oldest(at: LaneSession) -> None:
    found = _group(at).autoclaim("c", min_idle=0, count=3)
    assert len(found.entries) + len(found.deleted) == min(3, len(at.given))
    at.given = [id for id in at.given if id not in found.deleted]


def _by_lane(at: LaneSession) -> None:
    assert all(count >= 3 for count in at.commits.values()), f"not of the lane: {at.commits}"


MAKE = Do("create g", lambda at: at.store.stream("s").group("g").create("0"))
BACK = Do("nack", lambda at: _group(at).nack(at.given[0]))
TAKE = Do("claim", _take)
AGAIN = Do("backlog", lambda at: _group(at).backlog("c", count=2))
OLDEST = Do("autoclaim", _oldest)
OTHER = Do("add to another stream", lambda at: at.store.stream("t").add({"v": b"1"}, "1-1"))
BY_LANE = Do("the lane did it", _by_lane)
GROUPS = (
    add(1), MAKE, add(2), read(1), add(3), read(1), ack(0), add(4), read(2), ack(0, 1), ack(0),
    add(5), together(6, 7), delete(5), read(2), OTHER, result(12, 0), delete(0), read(1), ack(0),
    BACK, add(8), delete(3), CHECKPOINT, add(9), add(10), delete(4), read(1), ack(1), BACK, TAKE,
    delete(5), AGAIN, SYNC, read(2), ack(0), REOPEN, add(11), delete(0), read(1), BACK, AGAIN,
    BACK, OLDEST, AGAIN, TAKE,
    alone(13), alone(14), alone(15), BY_LANE,
)  # fmt: skip

WORKLOADS = (
    Workload("lane", GROUPS, "always", session=LaneSession),
    Workload("lane, everysec", GROUPS, "everysec", session=LaneSession),
)
