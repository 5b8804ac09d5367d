"""Runs steps on a store: changes that follow each other share a commit, also those of many clients.

Invariants: replies come in the order of the steps. A change that is refused leaves no trace and
does not touch its neighbours. A transaction's steps are one commit; its reads see what the steps
before them did. If one client's connection ends, the other clients of a shared commit have theirs.
It blocks, but for ``share(at_once=True)``: call it in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from logstore.api.opening import OpenStore, opened_of
from logstore.api.store import Store
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import NotFree
from logstore.engine.snapshots.snapshot import NotNow
from logstore.errors import DiskFullError, Error
from logstore.wire.partial_commits import PartialChange
from logstore.wire.resp.outgoing import ConnectionCut, Output
from logstore.wire.resp.reply import Encoded, Failed, Failure, Reply, encode, failure_of
from logstore.wire.steps import (
    ROW_BYTES,
    Admin,
    Beside,
    Block,
    Change,
    CommandStep,
    JoinedAdds,
    ReadStep,
    ReplyStep,
)
from logstore.wire.store_reader import ReaderAtOnce, StoreReader
from logstore.wire.together import (
    Added,
    Adds,
    ClientSteps,
    DecideAgain,
    JointOperation,
    Turn,
    encoded,
    every_turn,
    tell_failures,
    timed,
)

Outcome: TypeAlias = list[Reply] | Exception  # replies; or what ends the client's connection
T = TypeVar("T")
log = logging.getLogger("logstore.server")
BATCH_MAX_STEPS = 1000
SLOW_NS = 20_000_000  # what the loop does itself, and takes longer, is slow
SLOW_PAUSE_NS = 250_000_000  # that a thread does it then, or
SLOW_PAUSES = 4  # times as long as it took, if that is less
SLOW_EACH = 4  # a second one among so many


class Slowness:
    """Whether the loop leaves what it does itself to a thread for now, as it was slow: twice within
    a few, since one alone may have stood behind other processes."""

    def __init__(self) -> None:
        self.ever = False  # whether ``now`` may say so
        self._until_ns = 0
        self._lately = 0

    @property
    def now(self) -> bool:
        """Whether a thread does it."""
        return self.ever and time.perf_counter_ns() < self._until_ns

    def note(self, begun_ns: int) -> int:
        """It was done in the loop, and begun then (``time.perf_counter_ns``); how long it took."""
        ended_ns = time.perf_counter_ns()
        took_ns = ended_ns - begun_ns
        if took_ns <= SLOW_NS:
            if self._lately:
                self._lately -= 1
            return took_ns
        if self._lately:
            self.ever = True
            self._until_ns = ended_ns + min(SLOW_PAUSE_NS, SLOW_PAUSES * took_ns)
        self._lately = SLOW_EACH
        return took_ns


class NotRun:
    """Nothing was done."""

    __slots__ = ()


NOT_RUN = NotRun()


# -- reads in slices -------------------------------------------------------------------------------
class Reading:
    """A walk on its way, for one client; ``reply`` once it is over."""

    __slots__ = ("_store", "_walk", "_worked_ns", "begun", "look", "output", "reply", "waits")

    def __init__(self, look: ReadStep, store: Store[bytes], output: Output) -> None:
        assert look.walk is not None
        self.look = look
        self.output = output
        self.reply: Reply = None
        self.begun = False  # it had a slice
        self.waits = False  # its next slice is for a thread
        self._walk = look.walk()
        self._store = store
        self._worked_ns = 0

    def go_on(self, *, at_once: bool) -> bool:
        """Read a slice; whether the read is over, also if it failed. ``ConnectionCut``; with
        ``at_once`` ``NotNow``, and nothing was read."""
        begun_ns = time.perf_counter_ns()
        try:
            reader = (ReaderAtOnce if at_once else StoreReader)(self._store, self.output)
            more = self._walk.slice(reader)
            self._worked_ns += time.perf_counter_ns() - begun_ns
            self.begun = True
            if more:
                return False
            self.reply = self.output.made(self._walk.reply())
        except (ConnectionCut, NotNow):
            raise
        except (Error, Failed) as exc:
            self.reply = failure_of(exc)
        except Exception as exc:  # noqa: BLE001
            self.reply = _failed(self.look, exc)
        if self.look.request is not None:
            self.look.request.took(time.perf_counter_ns() - self._worked_ns)
            if type(self.reply) is Failure:
                self.look.request.failed()
        return True


def reply_now(step: ReplyStep) -> Reply:
    """The reply of a step that needs no store."""
    try:
        reply = timed(step.request, step.make)
    except Failed as failed:
        reply = failure_of(failed)
    if type(reply) is Failure and step.request is not None:
        step.request.failed()
    return reply


# -- steps of sessions ----------------------------------------------------------------------------
def _is_short_change(step: CommandStep) -> bool:
    return isinstance(step, JoinedAdds) or (isinstance(step, Change) and step.parts is None)


def is_shared(step: CommandStep) -> bool:
    """Whether it may share a commit with other clients' steps: it changes little."""
    if isinstance(step, JoinedAdds):
        return True
    return isinstance(step, Change) and step.parts is None and step.prepare is None


def cost_of(step: CommandStep) -> int:
    """About how many rows a change writes, by its bytes, too; 0: that is not known."""
    if isinstance(step, JoinedAdds):
        return len(step.rows) + step.size // ROW_BYTES
    return step.cost if isinstance(step, Change) else 0


def _has_parts(step: CommandStep) -> bool:
    return isinstance(step, Change) and step.parts is not None


def _is_amid(step: CommandStep) -> bool:
    return isinstance(step, Change) and step.begun is not None


def _refused(step: CommandStep, error: Exception) -> Reply:
    """The reply, or replies, of a step that was refused as a whole."""
    failure = failure_of(error)
    if isinstance(step, JoinedAdds):
        if step.request is not None:
            step.request.failed(len(step.rows))
        return Encoded(encode(failure, 2) * len(step.rows))
    return failure


def _failed(step: CommandStep, error: Exception) -> Reply:
    """The same of a defect of ours, which must not take the connection with it."""
    log.error("a command failed", exc_info=error)
    return _refused(step, error)


class Runner:
    """Runs the steps of all sessions of one store."""

    def __init__(self, store: Store[bytes]) -> None:
        self.store = store
        self._opened = opened_of(store)
        self._slow = Slowness()  # of reads in the loop's thread
        self._waits_for_syncs = self._opened.live().engine.options.sync == "always"

    def run(
        self, steps: Sequence[CommandStep], output: Output | None = None, *, whole: bool = True
    ) -> list[Reply]:
        """The replies of steps that came together, or of the first of them, if these are already
        enough; blocking ones try once. Unless ``whole``, also of none, if the first one is done in
        parts, and not through: call it again then."""
        output = output or Output()
        plain = [step.attempt if isinstance(step, Block) else step for step in steps]
        if len(plain) == 1 and not _has_parts(plain[0]):
            replies = [self._single(plain[0], output)]
            tell_failures(plain, replies)
            return replies
        replies = []
        for are_changes, group in groupby(plain, key=_is_short_change):
            left = list(group)
            while left and (not output.full or _is_amid(left[0])):
                if are_changes and len(left) > 1:
                    made = self._commit(left[:BATCH_MAX_STEPS], output)
                elif _has_parts(left[0]):
                    made = self._in_parts(left[0], output, whole=whole)
                    if not made:
                        return replies
                else:
                    made = [self._single(left[0], output)]
                tell_failures(left, made)
                replies += made
                del left[: len(made)]
        return replies

    def _in_parts(self, step: CommandStep, output: Output, *, whole: bool) -> list[Reply]:
        """The reply of a change that is several commits; [] amid them, unless ``whole``."""
        assert isinstance(step, Change)
        assert step.parts is not None
        reply: Reply
        begun = step.begun
        if begun is None:
            if step.prepare is not None:
                step.prepare()
            begun = step.begun = PartialChange(step.parts(output))
        try:
            while begun.part(opened_of(self.store).commit_telling, frees=step.frees):
                output.check()
                if not whole:
                    return []
            reply = output.made(begun.parts.reply())
        except ConnectionCut:
            raise
        except (Error, Failed) as exc:  # parts that went through stay: the client has to look
            reply = failure_of(exc)
        except Exception as exc:  # noqa: BLE001
            reply = _failed(step, exc)
        step.begun = None
        if step.request is not None:
            step.request.took(begun.begun_ns)
        return [reply]

    def share(self, runs: Sequence[ClientSteps], *, at_once: bool = False) -> list[Outcome]:
        """Do what several clients want to change as one commit; what became of each client's.

        The steps are such as ``is_shared`` tells. Each client gets the replies of as many of its
        steps as went into the commit, perhaps of none: the rest is asked for again. A client whose
        connection has to end, or for whom something of ours is defect, has no part in it; the
        others have theirs. With ``at_once`` it does not wait: ``NotFree``, and nothing happened.
        """
        if len(runs) == 1 and not at_once:
            return [self._alone(runs[0])]
        together = JointOperation(runs)
        try:
            self._decided(together, at_once=at_once)
        except NotFree:
            raise
        except (ConnectionCut, DiskFullError):
            return self._each_alone(runs, at_once=at_once)
        except Error as exc:
            outcomes = [[_refused(step, exc) for step in run.steps] for run in runs]
        except Exception:  # noqa: BLE001  each alone: then it is seen whose it is
            return self._each_alone(runs, at_once=at_once)
        else:
            outcomes = together.outcomes()
        for run, replies in zip(runs, outcomes, strict=True):
            tell_failures(run.steps, replies)
        return [*outcomes]

    def _each_alone(self, runs: Sequence[ClientSteps], *, at_once: bool) -> list[Outcome]:
        """Nothing of the shared commit happened, as one of them failed it: each its own commit."""
        if at_once:
            raise NotFree
        return [self._alone(run) for run in runs]

    def _alone(self, run: ClientSteps) -> Outcome:
        """What becomes of one client's steps."""
        try:
            return self.run(run.steps, run.output)
        except Exception as exc:  # noqa: BLE001  it ends this connection, and no other
            return exc

    def beside(self, work: Callable[[OpenStore[bytes]], T | None]) -> T | Failure | NotRun:
        """What a commit beside the pipeline gives, made without a wait, or what failed it;
        ``NOT_RUN``: nothing happened."""
        if self._waits_for_syncs:
            return NOT_RUN
        try:
            done = work(self._opened)
        except ConnectionCut:
            raise
        except Error as exc:
            return failure_of(exc)
        except Exception as exc:
            log.error("a command failed", exc_info=exc)
            return failure_of(exc)
        return NOT_RUN if done is None else done

    def at_once(
        self, step: CommandStep, output: Output, alone: Callable[[Beside], Reply | NotRun]
    ) -> Reply | NotRun:
        """The reply to a step that needs no wait, made in the loop's thread; ``NOT_RUN``: nothing
        of it has happened, or it is a read that is not through with its first slice.

        Args:
            step: any.
            output: of its client.
            alone: commits something beside the pipeline, if it is its turn.
        """
        begun_ns = time.perf_counter_ns()
        if isinstance(step, Change):
            done = NOT_RUN if step.beside is None else alone(step.beside)
        elif isinstance(step, ReadStep):
            if self._slow.ever and self._slow.now:
                return NOT_RUN
            if step.walk is not None:
                step.begun = reading = self.reading(step, output)
                return reading.reply if self.slice_at_once(reading) else NOT_RUN
            done = self._light(step, output, begun_ns) if step.light else NOT_RUN
        else:
            return reply_now(step) if isinstance(step, ReplyStep) and step.light else NOT_RUN
        if done is not NOT_RUN and step.request is not None:
            step.request.took(begun_ns)
            if type(done) is Failure:
                step.request.failed()
        return done

    def _light(self, look: ReadStep, output: Output, begun_ns: int) -> Reply | NotRun:
        try:
            return look.find(ReaderAtOnce(self.store, output))
        except Exception:  # noqa: BLE001  the thread meets it, too, and says what it is
            return NOT_RUN
        finally:
            self._slow.note(begun_ns)

    # -- reads in slices ----------------------------------------------------------------------
    def reading(self, look: ReadStep, output: Output) -> Reading:
        """A walk that is about to begin."""
        return Reading(look, self.store, output)

    def slice_at_once(self, reading: Reading) -> bool:
        """Read a slice in the loop's thread; whether the read is over. If that has to wait, nothing
        is read, and ``reading.waits``: a thread is to do it, by ``go_on``. ``ConnectionCut``."""
        reading.waits = self._slow.now
        if not reading.waits:
            begun_ns = time.perf_counter_ns()
            try:
                return reading.go_on(at_once=True)
            except NotNow:
                reading.waits = True
            finally:
                self._slow.note(begun_ns)
        return False

    def since(self, since_ns: int, work: Callable[..., T], *given: object) -> T:
        """Run work that commits and that came then (``time.monotonic_ns``); it stood in a queue."""
        with opened_of(self.store).live().committer.wanted_since(since_ns):
            return work(*given)

    def transaction(
        self,
        steps: Sequence[CommandStep],
        unchanged: Callable[[WriteTxn], bool] | None = None,
        output: Output | None = None,
        turn: Turn = every_turn,
    ) -> list[Reply] | None:
        """All steps as one commit; None, and nothing happens, if what was watched changed."""
        output = output or Output()
        together = JointOperation([ClientSteps(steps, output)], turn)

        def op(state: WriteTxn) -> bool:
            if unchanged is not None and not unchanged(state):
                return False
            together(state)
            return True

        if not self._decided(op):
            return None
        output.note(together.replies)
        tell_failures(steps, together.replies)
        return together.replies

    def _decided(self, op: Callable[[WriteTxn], T], *, at_once: bool = False) -> T:
        """Commit an operation; once more, without what failed, as often as it asks for that."""
        while True:
            try:
                result: T = opened_of(self.store).commit_telling(op, at_once=at_once)
            except DecideAgain:
                continue
            return result

    def _single(self, step: CommandStep, output: Output) -> Reply:
        """A step by itself, its change as a commit of its own."""
        try:
            if isinstance(step, Change):
                done = self._beside(step, output)
                return self._change(step, output) if done is None else done
            if isinstance(step, JoinedAdds):
                return self._joined_adds(step)
            if isinstance(step, ReadStep):
                reader = StoreReader(self.store, output)
                return output.made(timed(step.request, step.find, reader))
            assert isinstance(step, ReplyStep | Admin)
            work = step.make if isinstance(step, ReplyStep) else step.work
            return output.made(timed(step.request, work))
        except ConnectionCut:
            raise
        except (Error, Failed) as exc:
            return _refused(step, exc)
        except Exception as exc:  # noqa: BLE001
            return _failed(step, exc)

    def _beside(self, step: Change, output: Output) -> Reply:
        """The reply of a change that is a commit beside the pipeline; None, and nothing happened,
        where it is not."""
        if step.beside is None:
            return None
        begun_ns = time.perf_counter_ns()
        done = step.beside(self._opened)
        if done is None:
            return None
        if step.request is not None:
            step.request.took(begun_ns)
        return output.made(done)

    def _change(self, step: Change, output: Output, *, frees: bool = False) -> Reply:
        """The reply is made behind the commit, so that no other one waits for it."""
        if step.prepare is not None:
            step.prepare()
        mark = output.size

        def op(state: WriteTxn) -> Any:
            output.size = mark  # it may be decided more than once
            return timed(step.request, step.op, state)

        try:
            result = opened_of(self.store).commit_telling(op, frees=frees)
        except DiskFullError:
            if frees or not step.frees:
                raise
            return self._change(step, output, frees=True)  # in the space that is set aside
        return output.made(step.reply(result))

    def _commit(self, steps: Sequence[CommandStep], output: Output) -> list[Reply]:
        """Changes as one commit; the replies of as many as went into it."""
        together = JointOperation([ClientSteps(steps, output)])
        try:
            self._decided(together)
        except ConnectionCut:
            raise
        except DiskFullError:  # what gives space back goes on, what takes some is refused
            return [self._single(step, output) for step in steps]
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
                adds = Adds(step.key, step.rows, first, end)
                runs += self._decided(partial(timed, step.request, adds))
                first = end
            except Error as exc:
                if isinstance(exc, DiskFullError) and end - first > 1:
                    size = (end - first) // 2
                    continue
                runs += [failure_of(exc)] * (count - first)
                first = count
        return encoded(runs, step.request)
