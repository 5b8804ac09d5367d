"""Runs steps on a store: changes that follow each other share a commit.

Adds to one stream that came together are one operation, or one by one where that is refused.
Invariants: replies come in the order of the steps; a change that is refused leaves no trace and
does not touch its neighbours; a transaction's steps are one commit, and its reads see what the
steps before them did. It blocks: call it in a thread.
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
from logstore.wire.resp.failures import Failed, failure_of
from logstore.wire.resp.owed import Cut, Owed
from logstore.wire.resp.reply import Encoded, Failure, Reply, encode
from logstore.wire.steps import AddRow, AddRows, Admin, Block, Change, Look, Step, Tell, took

Run: TypeAlias = tuple[StreamID, int] | Failure  # the first ID and how many; or one refused


class Again(Exception):  # noqa: N818
    """A step failed after it had begun: the others are decided once more without it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def refused(step: AddRows, failure: Failure) -> Encoded:
    """The replies if all of them are refused."""
    return Encoded(encode(failure, 2) * len(step.rows))


def encoded(runs: list[Run]) -> Encoded:
    """The replies of all rows as bytes."""
    ids = codec().resp_ids
    return Encoded(
        b"".join(
            [encode(run, 2) if isinstance(run, Failure) else ids(*run[0], run[1]) for run in runs]
        )
    )


def each_reply(runs: list[Run]) -> list[Reply]:
    """A reply for each row."""
    found: list[Reply] = []
    for run in runs:
        if isinstance(run, Failure):
            found.append(run)
            continue
        id, count = run
        found.append(bytes(id))
        for _ in range(count - 1):
            id = id.next()
            found.append(bytes(id))
    return found


class Adding:
    """Rows of one stream, or some of them, until their commit is through."""

    def __init__(
        self, key: bytes, rows: RowBatch, first: int = 0, end: int | None = None
    ) -> None:  # fmt: skip
        self._key = key
        self._rows = rows
        self._first = first
        self._end = len(rows) if end is None else end
        self._apart = False
        self._refused: dict[int, Failure] = {}

    def __call__(self, state: WriteTxn) -> list[Run]:
        """Add them all; what became of them, in order. ``Again``: call it in another state."""
        if not self._apart:
            try:
                return [self._add(state, self._first, self._end)]
            except Again:
                self._apart = True
                raise
            except Error:
                self._apart = True
        return [self._one(state, at) for at in range(self._first, self._end)]

    def _one(self, state: WriteTxn, at: int) -> Run:
        found = self._refused.get(at)
        if found is not None:
            return found
        try:
            return self._add(state, at, at + 1)
        except Error as exc:
            self._refused[at] = found = failure_of(exc)
            return found
        except Again as again:
            self._refused[at] = failure_of(again.cause)
            raise

    def _add(self, state: WriteTxn, first: int, end: int) -> Run:
        buffer = state.buffer
        assert buffer is not None
        mark = buffer.mark()
        request = add.Add(self._key, self._rows, first, end, add.AUTO)
        try:
            added = add.add(state, request)
        except Error as exc:
            if buffer.mark() != mark:
                raise Again(exc) from exc
            raise
        assert added is not None
        return added.first, end - first


T = TypeVar("T")
log = logging.getLogger("logstore.server")
BATCH_MAX_STEPS = 1000
COMMIT_S = 0.01  # that one commit may go on with another step


class StoreReader:
    """Reads of the store as it stands."""

    def __init__(self, store: Store[bytes], owed: Owed) -> None:
        self._engine = opened_of(store).engine()
        self.rows = owed.rows
        self.check = owed.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` finds on one snapshot."""
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
        """What ``batch`` finds in the state at hand."""
        state = self._state
        state.flush()
        return batch(Snapshot(state.index, state.segments, lambda: state.now_ms))

    @property
    def now_ms(self) -> int:
        """The moment of the commit."""
        return self._state.now_ms


class _Together:
    """Steps as one operation: as many as it takes until enough is owed, or ``all_of`` them."""

    def __init__(self, steps: Sequence[Step], owed: Owed, *, all_of: bool = False) -> None:
        self._steps = steps
        self._owed = owed
        self._mark = owed.mark()
        self._all = all_of
        self.replies: list[Reply] = [None] * len(steps)
        self._failed: dict[int, Failure] = {}
        self._adding: dict[int, Adding] = {}  # by the place of the first row
        # What the only step found becomes its reply behind the commit, so that none waits for it.
        self._alone = len(steps) == 1 and not all_of and isinstance(steps[0], Change)
        self._found: Any = None
        for step in steps:
            if isinstance(step, Change) and step.prepare is not None:
                step.prepare()

    def __call__(self, state: WriteTxn) -> None:
        """Decide all of them that did not fail before."""
        buffer = state.buffer
        assert buffer is not None
        self._owed.back(self._mark)
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
            mark = buffer.mark()
            try:
                place += self._one(state, place)
            except (Error, Failed) as exc:
                self._failed[place] = failure_of(exc)
                if buffer.mark() != mark:
                    raise Again(exc) from exc

    def _one(self, state: WriteTxn, place: int) -> int:
        step = self._steps[place]
        if isinstance(step, Block):  # inside a transaction nothing waits
            step = step.attempt
        if isinstance(step, AddRow | AddRows):
            return self._rows(state, place, step)
        if not isinstance(step, (Change, Look, Tell)):
            raise Failed("ERR this command is not allowed inside a transaction")
        begun_ns = time.perf_counter_ns()
        try:
            if isinstance(step, Change):
                found = step.op(state)
                if self._alone:
                    self._found = found
                else:
                    self.replies[place] = self._owed.made(step.reply(found))
            elif isinstance(step, Look):
                self.replies[place] = self._owed.made(step.find(StateReader(state, self._owed)))
            else:
                self.replies[place] = step.make()
        finally:
            took(step.request, begun_ns)
        return 1

    def made(self) -> list[Reply]:
        """The replies, once the commit is through."""
        step = self._steps[0]
        if self._alone and not self._failed:
            assert isinstance(step, Change)
            self.replies[0] = self._owed.made(step.reply(self._found))
            self._found = None
        return self.replies

    def _rows(self, state: WriteTxn, place: int, step: AddRow | AddRows) -> int:
        """Rows for one stream that follow each other, as one operation; how many steps that are."""
        adding = self._adding.get(place)
        if isinstance(step, AddRows):
            if adding is None:
                adding = self._adding[place] = Adding(step.key, step.rows)
            self.replies[place] = encoded(adding(state))
            return 1
        if adding is None:
            rows = [each.row for each in _alike(self._steps, place)]
            adding = self._adding[place] = Adding(step.key, arguments.rows(rows, None))
        found = each_reply(adding(state))
        self.replies[place : place + len(found)] = found
        return len(found)


def _alike(steps: Sequence[Step], place: int) -> list[AddRow]:
    """The rows for the same stream that stand here one behind the other."""
    found: list[AddRow] = []
    while place < len(steps):
        step = steps[place]
        if not isinstance(step, AddRow) or (found and step.key != found[0].key):
            break
        found.append(step)
        place += 1
    return found


def _is_change(step: Step) -> bool:
    return isinstance(step, Change | AddRow | AddRows)


def _refused(step: Step, error: Exception) -> Reply:
    failure = failure_of(error)
    return refused(step, failure) if isinstance(step, AddRows) else failure


def told(step: Tell) -> Reply:
    """The reply of a step that needs no store."""
    begun_ns = time.perf_counter_ns()
    try:
        return step.make()
    except Failed as failed:
        return failure_of(failed)
    finally:
        took(step.request, begun_ns)


class Runner:
    """Runs the steps of all sessions of one store."""

    def __init__(self, store: Store[bytes]) -> None:
        self.store = store

    def run(self, steps: Sequence[Step], owed: Owed | None = None) -> list[Reply]:
        """The replies of steps that came together, or of the first of them, if these are already
        enough to be ``owed``; blocking ones try once."""
        owed = owed or Owed()
        if len(steps) == 1 and _is_change(steps[0]):
            one = steps[0]
            return [self._row(one)] if isinstance(one, AddRow) else self._commit(steps, owed)
        replies: list[Reply] = []
        plain = [step.attempt if isinstance(step, Block) else step for step in steps]
        for changes, group in groupby(plain, key=_is_change):
            found = list(group)
            at = 0
            while at < len(found) and not owed.full:
                if changes:
                    made = self._commit(found[at : at + BATCH_MAX_STEPS], owed)
                else:
                    made = [self._alone(found[at], owed)]
                replies += made
                at += len(made)
        return replies

    def since(self, since_ns: int, work: Callable[..., T], *given: object) -> T:
        """Run work that commits and that came then (``time.monotonic_ns``); it stood in a queue."""
        with opened_of(self.store).live().committer.wanted_since(since_ns):
            return work(*given)

    def transaction(
        self, steps: Sequence[Step], unchanged: Callable[[WriteTxn], bool] | None = None,
        owed: Owed | None = None,
    ) -> list[Reply] | None:  # fmt: skip
        """All steps as one commit; None, and nothing happens, if what was watched changed."""
        owed = owed or Owed()
        together = _Together(steps, owed, all_of=True)

        def op(state: WriteTxn) -> bool:
            if unchanged is not None and not unchanged(state):
                return False
            together(state)
            return True

        while True:
            try:
                went = opened_of(self.store).commit_telling(op)
            except Again:
                continue
            if went:
                owed.note(together.replies)
            return together.replies if went else None

    def _alone(self, step: Step, owed: Owed) -> Reply:
        assert isinstance(step, (Look, Tell, Admin))
        begun_ns = time.perf_counter_ns()
        try:
            if isinstance(step, Look):
                return owed.made(step.find(StoreReader(self.store, owed)))
            return owed.made(step.make() if isinstance(step, Tell) else step.work())
        except Cut:
            raise
        except (Error, Failed) as exc:
            return failure_of(exc)
        except Exception as exc:  # a defect of ours must not take the connection with it
            log.exception("a command failed")
            return failure_of(exc)
        finally:
            took(step.request, begun_ns)

    def _row(self, step: AddRow) -> Reply:
        """One add by itself, the short way."""
        try:
            return step.change.reply(opened_of(self.store).commit(step.change.op, None))
        except (Error, Failed) as exc:
            return failure_of(exc)
        except Exception as exc:
            log.exception("a command failed")
            return failure_of(exc)

    def _commit(self, steps: Sequence[Step], owed: Owed) -> list[Reply]:
        together = _Together(steps, owed)
        while True:
            try:
                opened_of(self.store).commit_telling(together)
                return together.made()
            except Again:
                continue
            except Cut:
                raise
            except DiskFullError as exc:
                if len(steps) > 1:  # what gives space back goes on, what takes some is refused
                    return [self._commit([step], owed)[0] for step in steps]
                if isinstance(steps[0], AddRows):
                    return [self._first_that_fit(steps[0])]
                return [self._freeing(steps[0], exc)]
            except Error as exc:
                return [_refused(step, exc) for step in steps]
            except Exception as exc:
                log.exception("a command failed")
                return [_refused(step, exc) for step in steps]

    def _first_that_fit(self, step: AddRows) -> Reply:
        """Adds that found the disk full together: as many as fit, then the rest is refused."""
        runs: list[Run] = []
        at, count = 0, len(step.rows)
        size = max(1, count // 2)
        while at < count:
            end = min(at + size, count)
            try:
                runs += self._added(Adding(step.key, step.rows, at, end))
                at = end
            except Error as exc:
                if isinstance(exc, DiskFullError) and end - at > 1:
                    size = (end - at) // 2
                    continue
                runs += [failure_of(exc)] * (count - at)
                at = count
        return encoded(runs)

    def _added(self, adding: Adding) -> list[Run]:
        while True:
            try:
                found: list[Run] = opened_of(self.store).commit_telling(adding)
                return found
            except Again:
                continue

    def _freeing(self, step: Step, full: DiskFullError) -> Reply:
        if not isinstance(step, Change) or not step.frees:
            return _refused(step, full)
        try:
            return step.reply(opened_of(self.store).commit_telling(step.op, frees=True))
        except (Error, Failed) as exc:
            return failure_of(exc)
