"""One client's session: its requests, from bytes or words to runs of steps.

Each request is looked up, permitted and parsed. Between MULTI and EXEC it is queued, refused, or
done at once, as the table says of its command; else it becomes a step, in the order of requests.
Steps that came together run together. A step that waits, replies without the store, or works on the
whole store is a run of its own.

Invariants: nothing behind such a step is looked at before it is done, since it may change how that
is read. A run ends at ``RUN_MAX_REQUESTS`` and ``RUN_MAX_S``: so a commit is smaller than all that
was sent, and reading holds up no loop. A command that is refused while queueing makes EXEC refuse
all. Knows no socket: the server and the embedded client feed it, and send its replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic

from logstore.codec import codec
from logstore.wire.audit import ADMINISTRATION
from logstore.wire.resp.reply import (
    NO_REPLY,
    QUEUED,
    Encoded,
    Failed,
    Failure,
    error_line,
    failure_of,
)
from logstore.wire.resp.requests import ProtocolError, RequestParser
from logstore.wire.resp.words import Words
from logstore.wire.service import Client
from logstore.wire.stats import CountedCalls, TimedRequest
from logstore.wire.steps import (
    Admin,
    Block,
    Change,
    CommandStep,
    JoinedAdds,
    ReadStep,
    ReplyStep,
    Unread,
)
from logstore.wire.table import Command

CROSS_PROTOCOL = frozenset({b"post", b"host:"})  # first words of HTTP, not of a Redis client
ADDS_MAX = 1000  # of one step
RUN_MAX_REQUESTS = 10_000
RUN_MAX_S = 0.003  # that requests become steps before these run
RUN_LOOK_STEPS = 32  # after so many it looks at the clock
LONG_WORDS = 1000  # of a request that becomes a step in a thread
SHORT_BYTES = 1024  # of an add that is looked at by itself
_TIMED = (ReadStep, ReplyStep, Admin)


class Session(Client):
    """A client whose requests become steps."""

    def step(self, words: list[bytes]) -> CommandStep:
        """Look up, permit and parse a request; its step, which tells a refusal if it is one."""
        service, parsed = self.service, False
        try:
            command = service.table.find(words)
            self.last_command = name = command.name
            if not self.authenticated and "no_auth" not in command.flags:
                raise Failed("NOAUTH Authentication required.")
            if self.multi is not None and "no_multi" in command.flags:
                raise service.table.not_in_multi(command)
            queued = self.multi is not None and not command.at_once
            if not self.user.everything:
                refusal = self.refusal(command, words)
                if refusal is not None:
                    raise Failed(refusal.text)
            if queued:
                return self._queue(command, words)
            if name in ADMINISTRATION:
                service.audit.command(self, command, words)
            if service.monitors and name != "exec":
                service.tell_monitors(self, command, words)
            parsed = True
            return self._parsed(command, words)
        except Failed as failed:
            self._count_refused(words, parsed=parsed)
            return self._refused(words, failed)

    def _count_refused(self, words: list[bytes], *, parsed: bool) -> None:
        """A request is refused: with its words ``parsed`` it was a call, as with the peers."""
        command = self.service.table.lookup(words)
        if command is None:
            return
        if parsed:
            self.service.counts.called(command.name, 1, 0, 1)
        else:
            self.service.counts.refused(command.name)

    def _refused(self, words: list[bytes], failed: Failed) -> CommandStep:
        """The step that tells why a request is none."""
        if words[0].lower() in CROSS_PROTOCOL:  # no command is called like that
            self.closing = True  # what is behind it is the body of a web page's request
            self.service.attacked(self)
            return ReplyStep(lambda: NO_REPLY)
        failure = failure_of(failed)
        if self.multi is not None:
            self.multi.refused = True
            if words[0].lower() == b"exec":  # which ends the transaction all the same
                self.multi = None
                self.unwatch()
                why = f"EXECABORT Transaction discarded because of: {failure.text}"
                failure = Failure(why)
        return ReplyStep(lambda: failure)

    def _queue(self, command: Command, words: list[bytes]) -> CommandStep:
        """Keep a command for EXEC; one that cannot be parsed is refused there."""
        assert self.multi is not None
        try:
            step = self._parsed(command, words)
        except Failed as failed:  # the peers find it out when they run it
            failure = failure_of(failed)
            step = ReplyStep(lambda: failure, self._timed(command, words))
        self.multi.queue(step, command, words)
        return ReplyStep(lambda: QUEUED)

    def _parsed(self, command: Command, words: list[bytes]) -> CommandStep:
        """The step of a command, with its request, which is counted and timed. A plain add is not
        joined with its neighbours if each command is timed by itself."""
        assert command.parse is not None
        step = command.parse(self, Words(words, 2 if "|" in command.name else 1))
        if isinstance(step, Change):
            step.request = self._timed(command, words)
            if self.service.slowlog.times_all:
                step.row = None
        elif isinstance(step, _TIMED):
            step.request = self._timed(command, words)
        elif isinstance(step, Block):
            step.attempt.request = self._timed(command, words)
            # The user may lose the right meanwhile; what is queued never waits.
            step.refusal = partial(self.refusal, command, words)
        return step

    def _timed(self, command: Command, words: list[bytes]) -> TimedRequest:
        service = self.service
        return TimedRequest(service.counts, service.slowlog, self, command, words)


class Batches:
    """One session's requests. Without ``joined`` each has its own step, and so its own reply;
    with ``sliced`` those of very many words become steps of their own, for a thread."""

    def __init__(self, session: Session, *, joined: bool = True, sliced: bool = False) -> None:
        self._sliced = sliced
        self._session = session
        self._joined = joined
        self._parser = RequestParser()
        self._only_add, self._only = codec().resp_add, codec().resp_request

    @property
    def held_bytes(self) -> int:
        """Bytes that are waiting for the rest of their request."""
        return self._parser.held_bytes

    def feed(self, data: bytes) -> Iterator[Sequence[CommandStep]]:
        """The runs of what came with these bytes; ask for one when the one before it is done."""
        self._parser.feed(data)
        return self._runs(self._requests())

    def is_short(self, data: bytes) -> bool:
        """Whether bytes that came may be one short request, and nothing else."""
        return len(data) <= SHORT_BYTES and self._parser.empty

    def only_add(self, data: bytes) -> tuple[bytes, dict[bytes, bytes]] | None:
        """The stream and the entry of short bytes, if they are one plain add and nothing else, of a
        client that may do everything and whose requests nobody watches. None, and nothing is
        taken: they are ``only`` another request, or to be fed."""
        session = self._session
        return self._only_add(data) if session.user.everything and session.plain else None

    def only(self, data: bytes) -> list[bytes] | None:
        """The words of short bytes, if they are one request and nothing else: far fewer than
        ``LONG_WORDS``. None, and nothing is taken: they are to be fed."""
        return self._only(data)

    def words(self, requests: Sequence[list[bytes]]) -> Iterator[Sequence[CommandStep]]:
        """The runs of requests that are words already."""
        return self._runs(self._steps(requests))

    def _requests(self) -> Iterator[CommandStep]:
        session, parser = self._session, self._parser
        try:
            while not session.closing:
                parser.trusted = session.authenticated
                if self._joined and session.plain and (adds := parser.adds(ADDS_MAX)) is not None:
                    yield self._adds(JoinedAdds(*adds))
                    continue
                words = parser.next()
                if words is None:
                    return
                if words:
                    yield self.step(words)
        except ProtocolError as exc:
            session.closing = True
            failure = Failure(f"ERR Protocol error: {exc}")
            yield ReplyStep(lambda: failure)

    def _steps(self, requests: Sequence[list[bytes]]) -> Iterator[CommandStep]:
        for words in requests:
            if self._session.closing:
                return
            yield self.step(words)

    def step(self, words: list[bytes]) -> CommandStep:
        """The step of one request; who runs it counts it."""
        if self._sliced and len(words) > LONG_WORDS:
            return Unread(partial(self._session.step, words))
        return self._session.step(words)

    def _adds(self, step: JoinedAdds) -> CommandStep:
        session, count = self._session, len(step.rows)
        counts = session.service.counts
        session.last_command = "xadd"
        step.request = CountedCalls(counts, "xadd", count)
        if session.user.everything:
            return step
        xadd = session.service.table.commands["xadd"]
        refusal = session.refusal(xadd, [b"XADD", step.key], count)
        if refusal is None:
            return step
        counts.count(count - 1)  # its reply is one step, and counted as such
        counts.refused("xadd", count)
        refused = Encoded(b"-%b\r\n" % error_line(refusal) * count)
        return ReplyStep(lambda: refused)

    def _runs(self, steps: Iterator[CommandStep]) -> Iterator[Sequence[CommandStep]]:
        """Steps that run together, counted when their turn comes."""
        count = self._session.service.counts.count
        run: list[CommandStep] = []
        requests = 0
        begun = monotonic()
        for step in steps:
            if isinstance(step, Block | Admin | ReplyStep | Unread):
                if run:
                    count(requests)
                    yield run
                    run, requests = [], 0
                count(1)
                yield (step,)
                begun = monotonic()
                continue
            run.append(step)
            requests += len(step.rows) if isinstance(step, JoinedAdds) else 1
            late = (
                self._sliced and not len(run) % RUN_LOOK_STEPS and monotonic() > begun + RUN_MAX_S
            )
            if late or requests >= RUN_MAX_REQUESTS:
                count(requests)
                yield run
                run, requests = [], 0
                begun = monotonic()
        if run:
            count(requests)
            yield run
