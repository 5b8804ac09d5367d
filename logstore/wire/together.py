"""Steps of one client, or of several, decided together as one operation of one commit.

Plain adds to one stream that follow each other are one add, whoever sent them; where that is
refused, they are added one by one.

Invariants: the result is that of the steps one behind the other, in their order. A step that is
refused leaves no trace and does not touch its neighbours; clients do not touch each other. A step
may be decided more than once, and counts when its commit is through. Knows no connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from logstore.api import arguments
from logstore.codec import RowBatch, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import add
from logstore.engine.streams.read import Batch
from logstore.errors import Error
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.wire.resp.outgoing import Output
from logstore.wire.resp.reply import Encoded, Failed, Failure, Reply, encode, failure_of
from logstore.wire.steps import (
    Block,
    Change,
    CommandStep,
    JoinedAdds,
    PlainAdd,
    RangeQuery,
    ReadStep,
    ReplyStep,
    Request,
    Unread,
)

Added: TypeAlias = tuple[StreamID, int] | Failure  # the first ID and how many; or one refused
T = TypeVar("T")
COMMIT_S = 0.01  # that one commit may go on with another step


class StateReader:
    """Reads inside a commit: what was done in it so far is seen."""

    def __init__(self, state: WriteTxn, output: Output) -> None:
        self._state = state
        self.rows = output.rows
        self.check = output.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads in the state at hand."""
        state = self._state
        state.flush()
        return batch(Snapshot(state.index, state.segments, lambda: state.now_ms))

    def record(self, key: bytes) -> StreamRecord | None:
        """The record of a stream."""
        return self.once(lambda view: view.record(key))

    def batch(self, _query: RangeQuery) -> Batch | None:
        """None: what this commit did is in its state alone."""
        return None

    @property
    def now_ms(self) -> int:
        """The moment of the commit."""
        return self._state.now_ms


class DecideAgain(Exception):  # noqa: N818
    """A step failed after it had begun: the others are decided once more without it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class Adds:
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
        """Add them all; the outcomes, in order. ``DecideAgain``: call it in another state."""
        if not self._apart:
            try:
                return [self._add(state, self._first, self._end)]
            except DecideAgain:
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
        except DecideAgain as again:
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
                raise DecideAgain(exc) from exc
            raise
        assert added is not None
        return added.first, end - first


def encoded(runs: list[Added], request: Request | None) -> Encoded:
    """The replies of all rows as bytes; their request is told how many failed."""
    ids, failed = codec().resp_ids, 0
    for run in runs:
        failed += isinstance(run, Failure)
    if failed and request is not None:
        request.failed(failed)
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


class ClientSteps(NamedTuple):
    """Steps of one client that came together, and what it is owed."""

    steps: Sequence[CommandStep]
    output: Output


_UNDECIDED: Reply = object()
# Asked when the step at a place has its turn: why it is not run, if it is not.
Turn: TypeAlias = Callable[[int], Failure | None]


def every_turn(_place: int) -> Failure | None:
    """Each step is run when its turn comes."""
    return None


class JointOperation:
    """Steps of one client, or of several, as one operation: of each as many as it takes until
    enough is owed to it, of all as many as the time of a commit allows; or all of them, if they
    are a transaction, whose steps have their ``turn``."""

    def __init__(self, runs: Sequence[ClientSteps], turn: Turn | None = None) -> None:
        self._runs = runs
        self._steps = [step for run in runs for step in run.steps]
        self._output = [run.output for run in runs for _ in run.steps]  # to the client of each step
        self._marks = [run.output.size for run in runs]
        self._all = turn is not None
        self._turn = turn or every_turn
        self.replies: list[Reply] = []  # one a step; _UNDECIDED: it is for another commit
        self._failed: dict[int, Failure] = {}
        self._done: dict[int, Reply] = {}  # of those that need no store: they are run once
        self._adds: dict[int, Adds] = {}  # by the place of the first row
        for step in self._steps:
            if isinstance(step, Change) and step.prepare is not None:
                step.prepare()

    def __call__(self, state: WriteTxn) -> None:
        """Decide all of them that did not fail before."""
        buffer = state.buffer
        assert buffer is not None
        for run, mark in zip(self._runs, self._marks, strict=True):
            run.output.size = mark
        count = len(self._steps)
        self.replies = [_UNDECIDED] * count
        place, begun = 0, time.monotonic()
        while place < count:
            if place and not self._all:
                if time.monotonic() - begun > COMMIT_S:
                    return  # the rest is another commit: others come in between
                if (following := self._unless_full(place)) != place:
                    place = following
                    continue
            if place in self._failed:
                self.replies[place] = self._failed[place]
                place += 1
                continue
            refusal = self._turn(place)
            if refusal is not None:
                self._failed[place] = refusal
                continue
            before = buffer.end
            try:
                place += self._decide(state, place)
            except (Error, Failed) as exc:
                self._failed[place] = failure_of(exc)
                if buffer.end != before:
                    raise DecideAgain(exc) from exc

    def _unless_full(self, place: int) -> int:
        """The next place, without the rest of a client that is owed enough by its steps so far."""
        output = self._output[place]
        if output.full and output is self._output[place - 1]:
            while place < len(self._output) and self._output[place] is output:
                place += 1
        return place

    def outcomes(self) -> list[list[Reply]]:
        """The replies of each client, of as many of its steps as went into the commit."""
        found: list[list[Reply]] = []
        first = 0
        for run in self._runs:
            mine = self.replies[first : first + len(run.steps)]
            first += len(run.steps)
            if mine[-1] is _UNDECIDED:
                del mine[mine.index(_UNDECIDED) :]
            found.append(mine)
        return found

    def _decide(self, state: WriteTxn, place: int) -> int:
        """Decide the step at a place, with those that are joined to it; how many these are."""
        step = self._steps[place]
        if isinstance(step, Block):  # inside a transaction nothing waits
            step = step.attempt
        output = self._output[place]
        if isinstance(step, Change):
            rows = _joined(self._steps, place)
            if len(rows) > 1:
                adds = self._adds.get(place)
                if adds is None:
                    batch = arguments.rows([row.pairs for row in rows], None)
                    adds = self._adds[place] = Adds(rows[0].key, batch)
                end = place + len(rows)
                requests = [_request(each) for each in self._steps[place:end]]
                self.replies[place:end] = _values(timed_together(requests, adds, state))
                return len(rows)
            self.replies[place] = output.made(step.reply(timed(step.request, step.op, state)))
        elif isinstance(step, JoinedAdds):
            adds = self._adds.setdefault(place, Adds(step.key, step.rows))
            self.replies[place] = encoded(timed(step.request, adds, state), step.request)
        elif isinstance(step, ReadStep):
            reader = StateReader(state, output)
            self.replies[place] = output.made(timed(step.request, step.find, reader))
        elif isinstance(step, ReplyStep):
            if place not in self._done:
                self._done[place] = timed(step.request, step.make)
            self.replies[place] = self._done[place]
        else:
            raise Failed("ERR this command is not allowed inside a transaction")
        return 1


def _joined(steps: Sequence[CommandStep], place: int) -> list[PlainAdd]:
    """The rows of plain adds to one stream that stand here one behind the other."""
    rows: list[PlainAdd] = []
    while place < len(steps):
        step = steps[place]
        row = step.row if isinstance(step, Change) else None
        if row is None or (rows and row.key != rows[0].key):
            break
        rows.append(row)
        place += 1
    return rows


def _request(step: CommandStep) -> Request | None:
    """The request of a step."""
    if isinstance(step, Block):
        return step.attempt.request
    return None if isinstance(step, Unread) else step.request


def tell_failures(steps: Sequence[CommandStep], replies: Sequence[Reply]) -> None:
    """Steps are answered: the requests of those that failed are told. Joined adds were told."""
    for step, reply in zip(steps, replies, strict=False):
        if type(reply) is Failure and (request := _request(step)) is not None:
            request.failed()


def timed_together(requests: Sequence[Request | None], work: Callable[..., T], *given: object) -> T:
    """What the work of several steps gives; each of their requests took its part of the time."""
    begun_ns = time.perf_counter_ns()
    try:
        return work(*given)
    finally:
        now_ns = time.perf_counter_ns()
        each_ns = (now_ns - begun_ns) // max(1, len(requests))
        for request in requests:
            if request is not None:
                request.took(time.perf_counter_ns() - each_ns)


def timed(request: Request | None, work: Callable[..., T], *given: object) -> T:
    """What the work of a step gives; its request keeps how long it took."""
    if request is None:
        return work(*given)
    begun_ns = time.perf_counter_ns()
    try:
        return work(*given)
    finally:
        request.took(begun_ns)
