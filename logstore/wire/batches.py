"""A client's requests, from bytes or words to runs of steps: what came together runs together.

Invariants: steps come in the order of requests; one that runs by itself (it waits, tells something,
or works on the whole store) is a run of its own, and nothing behind it is looked at before it is
done, since it may change how that is read; nor behind ``RUN_MAX_REQUESTS`` or ``RUN_MAX_S``, so
that a commit is not as large as all that was sent, and a loop is not held up by reading it. Knows
no socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic

from logstore.wire.reply import Encoded, Failure, told
from logstore.wire.requests import ProtocolError, RequestParser
from logstore.wire.session import Session
from logstore.wire.steps import AddRows, Admin, Block, Step, Tell, Unread

ADDS_MAX = 1000  # of one step
RUN_MAX_REQUESTS = 10_000
RUN_MAX_S = 0.003  # that requests become steps before these run
RUN_LOOK_STEPS = 32  # after so many it looks at the clock
LONG_WORDS = 1000  # of a request that becomes a step in a thread


class Batches:
    """One session's requests. Without ``joined`` each has its own step, and so its own reply;
    with ``sliced`` those of very many words become steps of their own, for a thread."""

    def __init__(self, session: Session, *, joined: bool = True, sliced: bool = False) -> None:
        self._sliced = sliced
        self._session = session
        self._joined = joined
        self._parser = RequestParser()

    @property
    def held_bytes(self) -> int:
        """Bytes that are waiting for the rest of their request."""
        return self._parser.held_bytes

    def feed(self, data: bytes) -> Iterator[Sequence[Step]]:
        """The runs of what came with these bytes; ask for one when the one before it is done."""
        self._parser.feed(data)
        return self._runs(self._requests())

    def words(self, requests: Sequence[list[bytes]]) -> Iterator[Sequence[Step]]:
        """The same of requests that are words already."""
        return self._runs(self._steps(requests))

    def _requests(self) -> Iterator[Step]:
        session, parser = self._session, self._parser
        try:
            while not session.closing:
                parser.trusted = session.authenticated
                if self._joined and session.plain and (found := parser.adds(ADDS_MAX)) is not None:
                    yield self._adds(AddRows(*found))
                    continue
                words = parser.next()
                if words is None:
                    return
                if words:
                    yield self.step(words)
        except ProtocolError as exc:
            session.closing = True
            failure = Failure(f"ERR Protocol error: {exc}")
            yield Tell(lambda: failure)

    def _steps(self, requests: Sequence[list[bytes]]) -> Iterator[Step]:
        for words in requests:
            if self._session.closing:
                return
            yield self.step(words)

    def step(self, words: list[bytes]) -> Step:
        """The step of one request."""
        self._session.service.counts.count(1)
        if self._sliced and len(words) > LONG_WORDS:
            return Unread(partial(self._session.step, words))
        return self._session.step(words)

    def _adds(self, step: AddRows) -> Step:
        self._session.service.counts.count(len(step.rows))
        session = self._session
        session.last_command = "xadd"
        if session.user.everything:
            return step
        xadd, count = session.service.table.commands["xadd"], len(step.rows)
        refusal = session.refusal(xadd, [b"XADD", step.key], count)
        if refusal is None:
            return step
        refused = Encoded(b"-%b\r\n" % told(refusal) * count)
        return Tell(lambda: refused)

    def _runs(self, found: Iterator[Step]) -> Iterator[Sequence[Step]]:
        steps: list[Step] = []
        requests = 0
        begun = monotonic()
        for step in found:
            if isinstance(step, Block | Admin | Tell | Unread):
                if steps:
                    yield steps
                    steps, requests = [], 0
                yield (step,)
                begun = monotonic()
                continue
            steps.append(step)
            requests += len(step.rows) if isinstance(step, AddRows) else 1
            late = (
                self._sliced and not len(steps) % RUN_LOOK_STEPS and monotonic() > begun + RUN_MAX_S
            )
            if late or requests >= RUN_MAX_REQUESTS:
                yield steps
                steps, requests = [], 0
                begun = monotonic()
        if steps:
            yield steps
