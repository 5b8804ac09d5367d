"""One client's session: what it said of itself, its transaction, and its commands as steps.

Invariants: between MULTI and EXEC commands are checked and queued, nothing runs; a command that is
refused while queueing makes EXEC refuse all; a session knows no socket: the server and the embedded
client both feed it words and send its replies.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.shm.waiters import SavedWaiters
from logstore.wire.command_words import Words
from logstore.wire.failures import Failed, failure_of
from logstore.wire.reply import NO_REPLY, NULL_ARRAY, OK, QUEUED, Failure, Reply
from logstore.wire.reply_budget import Owed
from logstore.wire.steps import AddRow, Admin, Block, Change, Look, Step, Tell
from logstore.wire.table import Command

if TYPE_CHECKING:
    from logstore.wire.acl import Denied
    from logstore.wire.service import Service
    from logstore.wire.users import User

_IDS = itertools.count(1)
AT_ONCE = frozenset({"multi", "exec", "discard", "watch", "unwatch", "quit", "reset"})
CROSS_PROTOCOL = frozenset({b"post", b"host:"})  # first words of HTTP, not of a Redis client
QUEUED_BYTES = 512  # of a queued command or a watched key, beside its words
WORD_BYTES = 40  # of a word, beside its bytes
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."
_NOTED = (Change, Look, Tell, Admin)  # steps that are timed
_NO_MORE = {
    "command": "no permission to execute the command or subcommand",
    "key": "no permission to touch the specified keys",
}


@dataclass
class Multi:
    """The commands queued since MULTI."""

    steps: list[Step] = field(default_factory=list)
    asked: list[tuple[Command, list[bytes]]] = field(default_factory=list)  # what each was
    refused: bool = False
    held_bytes: int = 0  # about what they take


class Session:
    """One client."""

    def __init__(self, service: Service, *, address: str = "", trusted: bool = False) -> None:
        self.service = service
        self.database = service.databases[0]  # SELECT
        self.id = next(_IDS)
        self.address = address
        self.local = address  # where the server took it
        self.protocol = 2
        self.name = b""
        self.library: dict[str, bytes] = {}
        self.trusted = trusted  # a client in this process
        self.user: User = service.users.default
        self.authenticated = trusted or service.open
        self.multi: Multi | None = None
        self.watched: dict[bytes, object] = {}  # keys, and their versions when they were watched
        self.watched_bytes = 0
        self.closing = False  # QUIT: close behind the reply
        self.gone = False  # it sends nothing any more: what blocks ends
        self.last_command = ""
        self.delay_s = 0.0  # that the next reply waits, after a login that failed
        self.born = time.time()
        self.replies = "ON"  # CLIENT REPLY
        self.marks: set[str] = set()  # of CLIENT LIST, that the client set: NO-EVICT, NO-TOUCH
        self.kill: Callable[[], object] | None = None  # CLIENT KILL: cut the connection
        self.unblock: Callable[[bool], None] | None = None  # CLIENT UNBLOCK: True with an error
        self.look_again: Callable[[], object] | None = None  # wakes what blocks: ask for its right
        self.kept_in: set[SavedWaiters] = set()  # where it may keep places in queues of groups
        self.owed = Owed()  # by the run of requests at hand
        self.send: Callable[[bytes], None] | None = None  # MONITOR: bytes that nobody asked for

    def leave(self) -> None:
        """The client went: what blocks is to end."""
        self.gone = True
        if self.unblock is not None:
            self.unblock(False)

    @property
    def held_bytes(self) -> int:
        """About what its transaction takes, queued and watched."""
        queued = 0 if self.multi is None else self.multi.held_bytes
        return queued + self.watched_bytes

    @property
    def plain(self) -> bool:
        """Whether each command runs, and is answered, when it comes."""
        return (
            self.authenticated and self.multi is None and self.replies == "ON"
            and not self.service.monitors and not self.service.slowlog.each
        )  # fmt: skip

    def told(self, replies: list[Reply]) -> list[Reply]:
        """What is sent of these replies; CLIENT REPLY may have said that some are not."""
        if self.replies != "ON":
            if self.replies == "OFF" or replies == [NO_REPLY]:
                return []
            self.replies, replies = "ON", replies[1:]
        return [each for each in replies if each is not NO_REPLY]

    # -- words to steps -----------------------------------------------------------------------
    def step(self, words: list[bytes]) -> Step:
        """What a command is to do; a refusal is a step that tells it."""
        if words[0][:1] in b"PpHh" and words[0].lower() in CROSS_PROTOCOL:
            self.closing = True  # what is behind it is the body of a web page's request
            self.service.attacked(self)
            return Tell(lambda: NO_REPLY)
        try:
            return self._step(words)
        except Failed as failed:
            failure = failure_of(failed)
            if self.multi is not None:
                self.multi.refused = True
                if words[0].lower() == b"exec":  # which ends the transaction all the same
                    self.multi = None
                    self.unwatch()
                    why = f"EXECABORT Transaction discarded because of: {failure.text}"
                    failure = Failure(why)
            return Tell(lambda: failure)

    def _step(self, words: list[bytes]) -> Step:
        command = self.service.table.find(words)
        self.last_command = command.name
        if not self.authenticated and "no_auth" not in command.flags:
            raise Failed("NOAUTH Authentication required.")
        queued = self.multi is not None and command.name not in AT_ONCE
        if queued and not {"no_multi", "no-multi"}.isdisjoint(command.flags):
            raise Failed("ERR Command not allowed inside a transaction")
        if not self.user.everything:
            refusal = self.refusal(command, words)
            if refusal is not None:
                raise Failed(refusal.text)
        self.service.audit.command(self, command, words)
        if queued:
            return self._queue(command, words)
        if self.service.monitors and command.name != "exec":
            self.service.tell_monitors(self, command, words)
        assert command.parse is not None
        step = command.parse(self, Words(words, 2 if "|" in command.name else 1))
        if isinstance(step, Block):  # the user may lose the right meanwhile
            step.refusal = partial(self.refusal, command, words)
        return self._noted(step, command, words)

    def _noted(self, step: Step, command: Command, words: list[bytes]) -> Step:
        """The step with what was asked, for the slow log. Adds of a pipeline run together, and are
        none of their own unless each is to be looked at."""
        slowlog = self.service.slowlog
        if isinstance(step, AddRow):
            if not slowlog.each:
                return step
            step = step.change
        noted = step.attempt if isinstance(step, Block) else step
        if isinstance(noted, _NOTED):
            noted.asked = (slowlog, self, command, words)
        return step

    def refusal(self, command: Command, words: list[bytes], times: int = 1) -> Failure | None:
        """What the user is told who may not run this; None if it is permitted."""
        if self.user.everything:
            return None
        denied = self.user.denies(command, words)
        if denied is None:
            return None
        self.service.denials.note(self, denied.reason, denied.what, self.user.name, times)
        self.service.audit.refused(self, denied.reason, denied.what)
        if denied.reason == "command":
            return Failure("NOPERM " + denied.told(self.user.name, command))
        return Failure("NOPERM No permissions to access a key")

    def login(self, name: bytes, password: bytes, command: bytes) -> None:
        """As AUTH; ``command``: the word that asked for it. Failed."""
        user = self.service.users.login(name, password)
        if user is None:
            self.service.denials.note(self, "auth", command, name)
            self.delay_s = self.service.logins.failed(self.address, name)
            raise Failed(WRONG_PASSWORD)
        self.user, self.authenticated = user, True
        self.service.audit.login(self)

    def _queue(self, command: Command, words: list[bytes]) -> Step:
        assert self.multi is not None
        assert command.parse is not None
        try:
            step = command.parse(self, Words(words, 2 if "|" in command.name else 1))
            step = self._noted(step, command, words)
        except Failed as failed:  # the peers find it out when they run it
            failure = failure_of(failed)
            step = Tell(lambda: failure)
        self.multi.steps.append(step)
        self.multi.held_bytes += held_bytes(words) + QUEUED_BYTES
        self.multi.asked.append((command, words))
        return Tell(lambda: QUEUED)

    # -- the transaction ----------------------------------------------------------------------
    def begin(self) -> Step:
        """As MULTI."""
        if self.multi is not None:
            return self._not_inside("multi", "ERR MULTI calls can not be nested")
        self.multi = Multi()
        return Tell(lambda: OK)

    def _not_inside(self, name: str, told: str) -> Step:
        """A command that is not allowed after MULTI; in Valkey EXEC is refused for it, too."""
        if self.service.profile == "valkey-9":
            raise Failed(f"ERR Command '{name}' not allowed inside a transaction")
        failure = Failure(told)
        return Tell(lambda: failure)

    def discard(self) -> Step:
        """As DISCARD."""
        if self.multi is None:
            raise Failed("ERR DISCARD without MULTI")
        self.multi = None
        self.unwatch()
        return Tell(lambda: OK)

    def execute(self) -> Step:
        """As EXEC."""
        multi, watched = self.multi, self.watched
        if multi is None:
            raise Failed("ERR EXEC without MULTI")
        steps = [] if multi.refused else self._still_permitted(multi)
        self.multi = None
        self.unwatch()
        if multi.refused:
            raise Failed("EXECABORT Transaction discarded because of previous errors.")

        def unchanged(state: WriteTxn) -> bool:
            return all(version_of(state, key) == version for key, version in watched.items())

        def run() -> Reply:
            found = self.database.runner.transaction(
                steps, unchanged if watched else None, self.owed
            )
            return NULL_ARRAY if found is None else found

        return Admin(run)

    def _still_permitted(self, multi: Multi) -> list[Step]:
        """The steps of a transaction; what the user lost the right to since then is refused."""
        if self.service.monitors:
            for command, words in [*multi.asked, (self.service.table.commands["exec"], [b"EXEC"])]:
                self.service.tell_monitors(self, command, words)
        if self.user.everything:
            return multi.steps
        steps: list[Step] = []
        for step, (command, words) in zip(multi.steps, multi.asked, strict=True):
            denied = self.user.denies(command, words)
            steps.append(step if denied is None else self._no_more(denied))
        return steps

    def _no_more(self, denied: Denied) -> Step:
        self.service.denials.note(self, denied.reason, denied.what, self.user.name)
        self.service.audit.refused(self, denied.reason, denied.what)
        failure = Failure(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
            "EXEC call. This command is no longer allowed for the following reason: "
            + _NO_MORE[denied.reason]
        )
        return Tell(lambda: failure)

    def watch(self, keys: list[bytes]) -> Step:
        """As WATCH."""
        if self.multi is not None:
            return self._not_inside("watch", "ERR WATCH inside MULTI is not allowed")

        def look() -> Reply:
            for key in keys:
                if key not in self.watched:
                    self.owed.check()
                    self.watched[key] = self.database.version(key)
                    self.watched_bytes += len(key) + QUEUED_BYTES
            return OK

        return Admin(look, commits=False)

    def unwatch(self) -> Step:
        """As UNWATCH."""
        self.watched = {}  # another one: EXEC may still look at this
        self.watched_bytes = 0
        return Tell(lambda: OK)

    def reset(self) -> None:
        """As RESET: as if it had just come."""
        self.multi = None
        self.unwatch()
        self.protocol = 2
        self.database = self.service.databases[0]
        self.name = b""
        self.marks.clear()
        self.service.monitors.pop(self.id, None)
        self.user = self.service.users.default
        self.authenticated = self.service.open
        if self.replies == "OFF":  # after SKIP, as in Redis, this one reply is skipped
            self.replies = "ON"


def held_bytes(words: list[bytes]) -> int:
    """About what the words of a request take."""
    return sum(map(len, words)) + WORD_BYTES * len(words)


def version_of(state: WriteTxn, key: bytes) -> object:
    """What changes whenever the stream, or one of its groups, does."""
    record = state.record_by_name(key)
    if record is None:
        return None
    groups = state.groups.of_stream(record.number)
    return record.number, record.position, tuple((each.number, each.position) for each in groups)


__all__ = ["Failure", "Multi", "Session", "version_of"]
