"""Runs steps on a store: changes that follow each other share a commit.

Plain adds to one stream that follow each other are one operation, or one by one where that is
refused. Invariants: replies come in the order of the steps; a change that is refused leaves no
trace and does not touch its neighbours; a transaction's steps are one commit, and its reads see
what the steps before them did. It blocks: call it in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from logstore.api import arguments
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.codec import RowBatch, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams import add
from logstore.errors import DiskFullError, Error
from logstore.ids import StreamID
from logstore.wire.parts import Begun
from logstore.wire.resp.failures import Failed, failure_of
from logstore.wire.resp.owed import Cut, Owed
from logstore.wire.resp.reply import Encoded, Failure, Reply, encode
from logstore.wire.steps import Admin, Block, Change, JoinedAdds, Look, Request, Row, Step, Tell

Added: TypeAlias = tuple[StreamID, int] | Failure  # the first ID and how many; or one refused
T = TypeVar("T")
log = logging.getLogger("logstore.server")
BATCH_MAX_STEPS = 1000
COMMIT_S = 0.01  # that one commit may go on with another step


# -- where a look reads ---------------------------------------------------------------------------
class StoreReader:
    """Reads of the store as it stands."""

    def __init__(self, store: Store[bytes], owed: Owed) -> None:
        self._engine = opened_of(store).engine()
        self.rows = owed.rows
        self.check = owed.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads on one snapshot."""
        self.check()
        return snapshot.read(self._engine, batch)

    @property
    def now_ms(self) -> int:
        """The store's clock."""
        return self._engine.clock.now_ms()


class StateReader:
    """Reads inside a commit: what was done in it so far is seen."""

    def __init__(self, state: WriteTxn, owed: Owed) -> None:
        self._state = state
        self.rows = owed.rows
        self.check = owed.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads in the state at hand."""
        state = self._state
        state.flush()
        return batch(Snapshot(state.index, state.segments, lambda: state.now_ms))

    @property
    def now_ms(self) -> int:
        """The moment of the commit."""
        return self._state.now_ms


# -- steps inside of a commit ---------------------------------------------------------------------
class _Again(Exception):  # noqa: N818
    """A step failed after it had begun: the others are decided once more without it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class _Adds:
    """Rows of one stream, or some of them, as one operation; one by one if that is refused.

    Each is added, or refused, as if it had come alone, in the order in which they came.
    """

    def __init__(self, key: bytes, rows: RowBatch, first: int = 0, end: int | None = None) -> None:
        self._key = key
        self._rows = rows
        self._first = first
        self._end = len(rows) if end is None else end
        self._apart = False
        self._refused: dict[int, Failure] = {}

    def __call__(self, state: WriteTxn) -> list[Added]:
        """Add them all; what became of them, in order. ``_Again``: call it in another state."""
        if not self._apart:
            try:
                return [self._add(state, self._first, self._end)]
            except _Again:
                self._apart = True
                raise
            except Error:
                self._apart = True
        return [self._add_one(state, place) for place in range(self._first, self._end)]

    def _add_one(self, state: WriteTxn, place: int) -> Added:
        failure = self._refused.get(place)
        if failure is not None:
            return failure
        try:
            return self._add(state, place, place + 1)
        except Error as exc:
            self._refused[place] = failure = failure_of(exc)
            return failure
        except _Again as again:
            self._refused[place] = failure_of(again.cause)
            raise

    def _add(self, state: WriteTxn, first: int, end: int) -> Added:
        buffer = state.buffer
        assert buffer is not None
        before = buffer.end
        try:
            added = add.add(state, add.Add(self._key, self._rows, first, end, add.AUTO))
        except Error as exc:
            if buffer.end != before:
                raise _Again(exc) from exc
            raise
        assert added is not None
        return added.first, end - first


def _encoded(runs: list[Added]) -> Encoded:
    """The replies of all rows as bytes."""
    ids = codec().resp_ids
    return Encoded(
        b"".join(
            [encode(run, 2) if isinstance(run, Failure) else ids(*run[0], run[1]) for run in runs]
        )
    )


def _values(runs: list[Added]) -> list[Reply]:
    """A reply for each row."""
    replies: list[Reply] = []
    for run in runs:
        if isinstance(run, Failure):
            replies.append(run)
            continue
        id, count = run
        replies.append(bytes(id))
        for _ in range(count - 1):
            id = id.next()
            replies.append(bytes(id))
    return replies


class _Together:
    """Steps as one operation: as many as it takes until enough is owed, or ``all_of`` them."""

    def __init__(self, steps: Sequence[Step], owed: Owed, *, all_of: bool = False) -> None:
        self._steps = steps
        self._owed = owed
        self._mark = owed.size
        self._all = all_of
        self.replies: list[Reply] = [None] * len(steps)
        self._failed: dict[int, Failure] = {}
        self._adds: dict[int, _Adds] = {}  # by the place of the first row
        for step in steps:
            if isinstance(step, Change) and step.prepare is not None:
                step.prepare()

    def __call__(self, state: WriteTxn) -> None:
        """Decide all of them that did not fail before."""
        buffer = state.buffer
        assert buffer is not None
        self._owed.size = self._mark
        place, begun = 0, time.monotonic()
        while place < len(self._steps):
            late = self._owed.full or time.monotonic() - begun > COMMIT_S
            if place and late and not self._all:
                del self.replies[place:]  # the rest is another commit: others come in between
                return
            if place in self._failed:
                self.replies[place] = self._failed[place]
                place += 1
                continue
            before = buffer.end
            try:
                place += self._decide(state, place)
            except (Error, Failed) as exc:
                self._failed[place] = failure_of(exc)
                if buffer.end != before:
                    raise _Again(exc) from exc

    def _decide(self, state: WriteTxn, place: int) -> int:
        """Decide the step at a place, with those that are joined to it; how many these are."""
        step = self._steps[place]
        if isinstance(step, Block):  # inside a transaction nothing waits
            step = step.attempt
        owed = self._owed
        if isinstance(step, Change):
            rows = _joined(self._steps, place)
            if len(rows) > 1:
                adds = self._adds.get(place)
                if adds is None:
                    batch = arguments.rows([row.pairs for row in rows], None)
                    adds = self._adds[place] = _Adds(rows[0].key, batch)
                self.replies[place : place + len(rows)] = _values(adds(state))
                return len(rows)
            self.replies[place] = owed.made(step.reply(_timed(step.request, step.op, state)))
        elif isinstance(step, JoinedAdds):
            adds = self._adds.setdefault(place, _Adds(step.key, step.rows))
            self.replies[place] = _encoded(adds(state))
        elif isinstance(step, Look):
            reader = StateReader(state, owed)
            self.replies[place] = owed.made(_timed(step.request, step.find, reader))
        elif isinstance(step, Tell):
            self.replies[place] = _timed(step.request, step.make)
        else:
            raise Failed("ERR this command is not allowed inside a transaction")
        return 1


def _joined(steps: Sequence[Step], place: int) -> list[Row]:
    """The rows of plain adds to one stream that stand here one behind the other."""
    rows: list[Row] = []
    while place < len(steps):
        step = steps[place]
        row = step.row if isinstance(step, Change) and step.request is None else None
        if row is None or (rows and row.key != rows[0].key):
            break
        rows.append(row)
        place += 1
    return rows


def _timed(request: Request | None, work: Callable[..., T], *given: object) -> T:
    """What the work of a step gives; its request keeps how long it took."""
    if request is None:
        return work(*given)
    begun_ns = time.perf_counter_ns()
    try:
        return work(*given)
    finally:
        request.took(begun_ns)


def told(step: Tell) -> Reply:
    """The reply of a step that needs no store."""
    try:
        return _timed(step.request, step.make)
    except Failed as failed:
        return failure_of(failed)


# -- steps of sessions ----------------------------------------------------------------------------
def _is_short_change(step: Step) -> bool:
    return isinstance(step, JoinedAdds) or (isinstance(step, Change) and step.parts is None)


def _has_parts(step: Step) -> bool:
    return isinstance(step, Change) and step.parts is not None


def _is_amid(step: Step) -> bool:
    return isinstance(step, Change) and step.begun is not None


def _refused(step: Step, error: Exception) -> Reply:
    """The reply, or replies, of a step that was refused as a whole."""
    failure = failure_of(error)
    if isinstance(step, JoinedAdds):
        return Encoded(encode(failure, 2) * len(step.rows))
    return failure


def _failed(step: Step, error: Exception) -> Reply:
    """The same of a defect of ours, which must not take the connection with it."""
    log.error("a command failed", exc_info=error)
    return _refused(step, error)


class Runner:
    """Runs the steps of all sessions of one store."""

    def __init__(self, store: Store[bytes]) -> None:
        self.store = store

    def run(
        self, steps: Sequence[Step], owed: Owed | None = None, *, whole: bool = True
    ) -> list[Reply]:
        """The replies of steps that came together, or of the first of them, if these are already
        enough to be ``owed``; blocking ones try once. Unless ``whole``, also of none, if the first
        one is done in parts, and not through: call it again then."""
        owed = owed or Owed()
        plain = [step.attempt if isinstance(step, Block) else step for step in steps]
        if len(plain) == 1 and not _has_parts(plain[0]):
            return [self._single(plain[0], owed)]
        replies: list[Reply] = []
        for are_changes, group in groupby(plain, key=_is_short_change):
            left = list(group)
            while left and (not owed.full or _is_amid(left[0])):
                if are_changes and len(left) > 1:
                    made = self._commit(left[:BATCH_MAX_STEPS], owed)
                elif _has_parts(left[0]):
                    made = self._in_parts(left[0], owed, whole=whole)
                    if not made:
                        return replies
                else:
                    made = [self._single(left[0], owed)]
                replies += made
                del left[: len(made)]
        return replies

    def _in_parts(self, step: Step, owed: Owed, *, whole: bool) -> list[Reply]:
        """The reply of a change that is several commits; [] amid them, unless ``whole``."""
        assert isinstance(step, Change)
        assert step.parts is not None
        reply: Reply
        begun = step.begun
        if begun is None:
            if step.prepare is not None:
                step.prepare()
            begun = step.begun = Begun(step.parts(owed))
        try:
            while begun.part(opened_of(self.store).commit_telling, frees=step.frees):
                owed.check()
                if not whole:
                    return []
            reply = owed.made(begun.parts.reply())
        except Cut:
            raise
        except (Error, Failed) as exc:  # parts that went through stay: the client has to look
            reply = failure_of(exc)
        except Exception as exc:  # noqa: BLE001
            reply = _failed(step, exc)
        step.begun = None
        if step.request is not None:
            step.request.took(begun.begun_ns)
        return [reply]

    def since(self, since_ns: int, work: Callable[..., T], *given: object) -> T:
        """Run work that commits and that came then (``time.monotonic_ns``); it stood in a queue."""
        with opened_of(self.store).live().committer.wanted_since(since_ns):
            return work(*given)

    def transaction(
        self,
        steps: Sequence[Step],
        unchanged: Callable[[WriteTxn], bool] | None = None,
        owed: Owed | None = None,
    ) -> list[Reply] | None:
        """All steps as one commit; None, and nothing happens, if what was watched changed."""
        owed = owed or Owed()
        together = _Together(steps, owed, all_of=True)

        def op(state: WriteTxn) -> bool:
            if unchanged is not None and not unchanged(state):
                return False
            together(state)
            return True

        if not self._decided(op):
            return None
        owed.note(together.replies)
        return together.replies

    def _decided(self, op: Callable[[WriteTxn], T]) -> T:
        """Commit an operation; once more, without what failed, as often as it asks for that."""
        while True:
            try:
                result: T = opened_of(self.store).commit_telling(op)
            except _Again:
                continue
            return result

    def _single(self, step: Step, owed: Owed) -> Reply:
        """A step by itself, its change as a commit of its own."""
        try:
            if isinstance(step, Change):
                return self._change(step, owed)
            if isinstance(step, JoinedAdds):
                return self._joined_adds(step)
            if isinstance(step, Look):
                reader = StoreReader(self.store, owed)
                return owed.made(_timed(step.request, step.find, reader))
            assert isinstance(step, Tell | Admin)
            work = step.make if isinstance(step, Tell) else step.work
            return owed.made(_timed(step.request, work))
        except Cut:
            raise
        except (Error, Failed) as exc:
            return _refused(step, exc)
        except Exception as exc:  # noqa: BLE001
            return _failed(step, exc)

    def _change(self, step: Change, owed: Owed, *, frees: bool = False) -> Reply:
        """The reply is made behind the commit, so that no other one waits for it."""
        if step.prepare is not None:
            step.prepare()
        mark = owed.size

        def op(state: WriteTxn) -> Any:
            owed.size = mark  # it may be decided more than once
            return _timed(step.request, step.op, state)

        try:
            result = opened_of(self.store).commit_telling(op, frees=frees)
        except DiskFullError:
            if frees or not step.frees:
                raise
            return self._change(step, owed, frees=True)  # in the space that is set aside
        return owed.made(step.reply(result))

    def _commit(self, steps: Sequence[Step], owed: Owed) -> list[Reply]:
        """Changes as one commit; the replies of as many as went into it."""
        together = _Together(steps, owed)
        try:
            self._decided(together)
        except Cut:
            raise
        except DiskFullError:  # what gives space back goes on, what takes some is refused
            return [self._single(step, owed) for step in steps]
        except Error as exc:
            return [_refused(step, exc) for step in steps]
        except Exception as exc:  # noqa: BLE001
            return [_failed(step, exc) for step in steps]
        return together.replies

    def _joined_adds(self, step: JoinedAdds) -> Reply:
        """Adds that came together; those that find the disk full together: as many as fit."""
        runs: list[Added] = []
        first, count = 0, len(step.rows)
        size = count
        while first < count:
            end = min(first + size, count)
            try:
                runs += self._decided(_Adds(step.key, step.rows, first, end))
                first = end
            except Error as exc:
                if isinstance(exc, DiskFullError) and end - first > 1:
                    size = (end - first) // 2
                    continue
                runs += [failure_of(exc)] * (count - first)
                first = count
        return _encoded(runs)
