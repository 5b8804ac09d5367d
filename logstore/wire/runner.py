"""Runs steps on a store: changes that follow each other share a commit, also those of many clients.

Invariants: replies come in the order of the steps; a change that is refused leaves no
trace and does not touch its neighbours; a transaction's steps are one commit, and its reads see
what the steps before them did; what ends one client's connection has no part in a shared commit,
and the others have theirs. It blocks, but for ``share(at_once=True)``: call it in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import NotFree
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.errors import DiskFullError, Error
from logstore.ids import StreamID
from logstore.wire.partial_commits import Begun
from logstore.wire.resp.failures import Failed, failure_of
from logstore.wire.resp.outgoing import Cut, Owed
from logstore.wire.resp.reply import Encoded, Failure, Reply, encode
from logstore.wire.steps import Admin, Block, Change, JoinedAdds, Look, Step, Tell
from logstore.wire.together import (
    Added,
    Adds,
    Again,
    Run,
    Together,
    Turn,
    encoded,
    every_turn,
    timed,
)

Outcome: TypeAlias = list[Reply] | Exception  # replies; or what ends the client's connection
T = TypeVar("T")
log = logging.getLogger("logstore.server")
BATCH_MAX_STEPS = 1000
SLOW_S = (
    0.02  # what the loop did itself, and took longer, sends those behind it to a thread for a while
)
SLOW_PAUSE_S = 0.25


class NotRun:
    """Nothing was done."""

    __slots__ = ()


NOT_RUN = NotRun()


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


class _ReaderAtOnce(StoreReader):
    """The same without a wait: ``NotNow``."""

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads on one snapshot."""
        return snapshot.read_at_once(self._engine, batch)


def told(step: Tell) -> Reply:
    """The reply of a step that needs no store."""
    try:
        return timed(step.request, step.make)
    except Failed as failed:
        return failure_of(failed)


# -- steps of sessions ----------------------------------------------------------------------------
def _is_short_change(step: Step) -> bool:
    return isinstance(step, JoinedAdds) or (isinstance(step, Change) and step.parts is None)


def is_shared(step: Step) -> bool:
    """Whether it may share a commit with other clients' steps: it changes little."""
    if isinstance(step, JoinedAdds):
        return True
    return isinstance(step, Change) and step.parts is None and step.prepare is None


def light_rows(step: Step) -> int:
    """How many rows a step adds, if it adds plain ones and does nothing else; 0 if it does."""
    if isinstance(step, JoinedAdds):
        return len(step.rows)
    return 1 if isinstance(step, Change) and step.row is not None else 0


def plain_fields(steps: Sequence[Step]) -> tuple[bytes, dict[bytes, bytes]] | None:
    """The stream and the entry of steps that are one plain add, watched by nobody; else None."""
    step = steps[0]
    if len(steps) > 1 or not isinstance(step, Change) or step.row is None or step.request:
        return None
    key, pairs = step.row
    fields = dict(pairs)
    return (key, fields) if len(fields) == len(pairs) else None  # a dict has no name twice


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
        self._opened = opened_of(store)
        self._threads_until = 0.0  # no light look is made at once before then
        self._waits_for_syncs = self._opened.live().engine.options.sync == "always"

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

    def share(self, runs: Sequence[Run], *, at_once: bool = False) -> list[Outcome]:
        """Do what several clients want to change as one commit; what became of each client's.

        The steps are such as ``is_shared`` tells. Each client gets the replies of as many of its
        steps as went into the commit, perhaps of none: the rest is asked for again. A client whose
        connection has to end, or for whom something of ours is defect, has no part in it; the
        others have theirs. With ``at_once`` it does not wait: ``NotFree``, and nothing happened.
        """
        if len(runs) == 1 and not at_once:
            return [self._alone(runs[0])]
        together = Together(runs)
        try:
            self._decided(together, at_once=at_once)
        except NotFree:
            raise
        except (Cut, DiskFullError):
            return self._each_alone(runs, at_once=at_once)
        except Error as exc:
            return [[_refused(step, exc) for step in run.steps] for run in runs]
        except Exception:  # noqa: BLE001  each alone: the one whose it is is told and logged there
            return self._each_alone(runs, at_once=at_once)
        return [*together.outcomes()]

    def _each_alone(self, runs: Sequence[Run], *, at_once: bool) -> list[Outcome]:
        """Nothing of the shared commit happened, as one of them failed it: each its own commit."""
        if at_once:
            raise NotFree
        return [self._alone(run) for run in runs]

    def _alone(self, run: Run) -> Outcome:
        """What becomes of one client's steps."""
        try:
            return self.run(run.steps, run.owed)
        except Exception as exc:  # noqa: BLE001  it ends this connection, and no other
            return exc

    def plain_add(self, key: bytes, fields: dict[bytes, bytes]) -> StreamID | Failure | None:
        """The ID of a plain add that was committed beside the pipeline, without waiting, or what
        failed it; None: it was not, and nothing happened."""
        if self._waits_for_syncs:
            return None
        try:
            return self._opened.add_plain(key, fields)
        except Error as exc:
            return failure_of(exc)
        except Exception as exc:
            log.error("a command failed", exc_info=exc)
            return failure_of(exc)

    def light(self, step: Step, owed: Owed) -> Reply | NotRun:
        """The reply to a step that is light, made without a wait; ``NOT_RUN`` if it is not, or that
        cannot be: it is to be run in a thread."""
        if isinstance(step, Tell) and step.light:
            return told(step)
        if not isinstance(step, Look) or not step.light or time.monotonic() < self._threads_until:
            return NOT_RUN
        begun = time.monotonic()
        try:
            return timed(step.request, step.find, _ReaderAtOnce(self.store, owed))
        except Exception:  # noqa: BLE001  the thread meets it, too, and says what it is
            return NOT_RUN
        finally:
            ended = time.monotonic()
            if ended - begun > SLOW_S:  # the disk is read
                self._threads_until = ended + SLOW_PAUSE_S

    def since(self, since_ns: int, work: Callable[..., T], *given: object) -> T:
        """Run work that commits and that came then (``time.monotonic_ns``); it stood in a queue."""
        with opened_of(self.store).live().committer.wanted_since(since_ns):
            return work(*given)

    def transaction(
        self,
        steps: Sequence[Step],
        unchanged: Callable[[WriteTxn], bool] | None = None,
        owed: Owed | None = None,
        turn: Turn = every_turn,
    ) -> list[Reply] | None:
        """All steps as one commit; None, and nothing happens, if what was watched changed."""
        owed = owed or Owed()
        together = Together([Run(steps, owed)], turn)

        def op(state: WriteTxn) -> bool:
            if unchanged is not None and not unchanged(state):
                return False
            together(state)
            return True

        if not self._decided(op):
            return None
        owed.note(together.replies)
        return together.replies

    def _decided(self, op: Callable[[WriteTxn], T], *, at_once: bool = False) -> T:
        """Commit an operation; once more, without what failed, as often as it asks for that."""
        while True:
            try:
                result: T = opened_of(self.store).commit_telling(op, at_once=at_once)
            except Again:
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
                return owed.made(timed(step.request, step.find, reader))
            assert isinstance(step, Tell | Admin)
            work = step.make if isinstance(step, Tell) else step.work
            return owed.made(timed(step.request, work))
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
            return timed(step.request, step.op, state)

        try:
            result = opened_of(self.store).commit_telling(op, frees=frees)
        except DiskFullError:
            if frees or not step.frees:
                raise
            return self._change(step, owed, frees=True)  # in the space that is set aside
        return owed.made(step.reply(result))

    def _commit(self, steps: Sequence[Step], owed: Owed) -> list[Reply]:
        """Changes as one commit; the replies of as many as went into it."""
        together = Together([Run(steps, owed)])
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
        return together.outcomes()[0]

    def _joined_adds(self, step: JoinedAdds) -> Reply:
        """Adds that came together; those that find the disk full together: as many as fit."""
        runs: list[Added] = []
        first, count = 0, len(step.rows)
        size = count
        while first < count:
            end = min(first + size, count)
            try:
                runs += self._decided(Adds(step.key, step.rows, first, end))
                first = end
            except Error as exc:
                if isinstance(exc, DiskFullError) and end - first > 1:
                    size = (end - first) // 2
                    continue
                runs += [failure_of(exc)] * (count - first)
                first = count
        return encoded(runs)
