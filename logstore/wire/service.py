"""What a command may touch: the client that asks, and the service that all its clients share.

A ``Client`` is what is known of one connection, and its open transaction; a ``Service`` has the
databases, the users, the counts, and all clients, so that CLIENT LIST, KILL and UNBLOCK find them.
Invariants: one service a server, or a store that this process embeds; a client is among the
service's from when it is made until ``Service.end``; the stores are opened and closed by who made
the service. Knows no socket and no command.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.shm.waiters import SavedWaiters
from logstore.ids import StreamID
from logstore.options import Profile
from logstore.wire.audit import Audit, Denials, Logins, Reason, without_passwords
from logstore.wire.command_runner import Runner
from logstore.wire.log_limiter import Seldom
from logstore.wire.resp.outgoing import Owed
from logstore.wire.resp.reply import NO_REPLY, Failure, Reply
from logstore.wire.resp.words import Words, quoted
from logstore.wire.stats import Counts, SlowLog
from logstore.wire.steps import Step
from logstore.wire.table import Command, is_valkey
from logstore.wire.users import User, Users

CLIENTS_MAX = 10_000
VERSION_TOLD: dict[Profile, str] = {
    "redis-8.2": "8.2.3",
    "redis-8.10": "8.10.0",
    "valkey-9": "9.1.2",
    "valkey-9.2": "9.2.0",
}
QUEUED_BYTES = 512  # of a queued command or a watched key, beside its words
WORD_BYTES = 40  # of a word, beside its bytes
_IDS = itertools.count(1)


class Database(NamedTuple):
    """A store under its number for SELECT, and what runs steps on it."""

    number: int
    store: Store[bytes]
    runner: Runner


class Seen(NamedTuple):
    """What WATCH keeps of a key."""

    position: int  # of the last frame that changed its record, also by XSETID; 0: it is missing
    content: tuple[int, ...] = ()  # what XSETID leaves
    last_ids: tuple[StreamID, ...] = ()  # what XSETID sets
    next_stream: int = 0  # of a missing one: the number of the stream that is made next


@dataclass
class Multi:
    """The commands queued since MULTI."""

    steps: list[Step] = field(default_factory=list)
    requests: list[tuple[Command, list[bytes]]] = field(default_factory=list)  # one a step
    refused: bool = False
    held_bytes: int = 0  # about what they take
    login_failed: bool = False  # at EXEC: no further password is looked at

    def queue(self, step: Step, command: Command, words: list[bytes]) -> None:
        """Keep a command for EXEC."""
        self.steps.append(step)
        self.requests.append((command, words))
        self.held_bytes += sum(map(len, words)) + WORD_BYTES * len(words) + QUEUED_BYTES


class Client:
    """One client: who it is, what it has set, what it is owed."""

    def __init__(
        self, service: Service, *, address: str = "", local: str = "", trusted: bool = False
    ) -> None:
        self.service = service
        self.database = service.databases[0]  # SELECT
        self.id = next(_IDS)
        self.address = address
        self.local = local or address  # where the server took it
        self.protocol = 2
        self.name = b""
        self.library: dict[str, bytes] = {}
        self.trusted = trusted  # a client in this process
        self.user: User = service.users.default
        self.authenticated = trusted or service.open
        self.multi: Multi | None = None
        self.watched: dict[bytes, Seen] = {}  # keys as they were then
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
        service.begin(self)

    @property
    def user_name(self) -> bytes:
        """The name of the user that the client is logged in as."""
        return self.user.name

    def leave(self) -> None:
        """The client has gone: end its read that blocks, if there is one."""
        self.gone = True
        if self.unblock is not None:
            self.unblock(False)

    @property
    def held_bytes(self) -> int:
        """About how much memory its transaction takes: queued commands and watched keys."""
        queued = 0 if self.multi is None else self.multi.held_bytes
        return queued + self.watched_bytes

    @property
    def plain(self) -> bool:
        """Whether each command runs, and is answered, when it comes."""
        return (
            self.authenticated
            and self.multi is None
            and self.replies == "ON"
            and not self.service.monitors
            and not self.service.slowlog.times_all
        )

    def unwatch(self) -> None:
        """Watch no key any more."""
        self.watched = {}  # another one: EXEC may still look at this
        self.watched_bytes = 0

    def sent(self, replies: list[Reply]) -> list[Reply]:
        """What is sent of these replies; CLIENT REPLY may have said that some are not."""
        if self.replies != "ON":
            if self.replies == "OFF" or replies == [NO_REPLY]:
                return []
            self.replies, replies = "ON", replies[1:]
        return [reply for reply in replies if reply is not NO_REPLY]

    # -- what it may not do -------------------------------------------------------------------
    def refusal(self, command: Command, words: list[bytes], times: int = 1) -> Failure | None:
        """The reply to a client that may not run this; None if it may. It is noted."""
        if self.user.everything:
            return None
        denied = self.user.denies(command, words)
        if denied is None:
            return None
        self.deny(denied.reason, denied.what, self.user.name, times)
        self.service.audit.refused(self, denied.reason, denied.what)
        if denied.reason == "command":
            return Failure("NOPERM " + denied.told(self.user.name, command))
        return Failure("NOPERM No permissions to access a key")

    def deny(self, reason: Reason, what: bytes, user: bytes, times: int = 1) -> None:
        """Note for ACL LOG that it was refused something, one time or in a row."""
        context = "toplevel" if self.multi is None else "multi"
        self.service.denials.note(reason, context, what, user, self.line().rstrip(b"\n"), times)

    # -- what is told of it -------------------------------------------------------------------
    def line(self) -> bytes:
        """The client as CLIENT LIST shows it."""
        fields = {
            "id": self.id,
            "addr": self.address,
            "laddr": self.local,
            "name": self.name.decode("latin-1"),
            "age": int(time.time() - self.born),
            "flags": self._flags(),
            "db": self.database.number,
            "multi": -1 if self.multi is None else len(self.multi.steps),
            "watch": len(self.watched),
            "cmd": self.last_command,
            "user": self.user.name.decode("utf-8", "replace"),
            "resp": self.protocol,
            "lib-name": self.library.get("lib-name", b"").decode("latin-1"),
            "lib-ver": self.library.get("lib-ver", b"").decode("latin-1"),
        }
        return " ".join(f"{name}={value}" for name, value in fields.items()).encode() + b"\n"

    def _flags(self) -> str:
        """The flags of CLIENT LIST, in the peers' order; N if there are none."""
        known = [
            ("x", self.multi is not None),
            ("b", self.unblock is not None),
            ("c", self.closing),
            ("U", self.address == "unix"),
            ("e", "e" in self.marks),
            ("T", "T" in self.marks),
        ]
        return "".join(letter for letter, holds in known if holds) or "N"


Parse: TypeAlias = Callable[[Client, Words], Step]  # what a command of the table does with words


class Service:
    """A store, served as database 0, and the ``others`` under their numbers."""

    def __init__(
        self,
        store: Store[bytes],
        users: Users,
        *,
        users_file: Path | None = None,
        allow_flush: bool = False,
        others: Mapping[int, Store[bytes]] | None = None,
    ) -> None:
        self.store = store
        self.users = users
        self.users_file = users_file  # of ACL LOAD and SAVE
        self.table = users.table
        self.profile: Profile = users.table.profile
        self.allow_flush = allow_flush
        self.shutdown: Callable[[], None] | None = None
        self.databases = {
            number: Database(number, served, Runner(served))
            for number, served in {0: store, **(others or {})}.items()
        }
        self.denials = Denials()
        self.slowlog = SlowLog()
        self.audit = Audit()
        self.clients: dict[int, Client] = {}
        self.monitors: dict[int, Client] = {}  # MONITOR: they are told what others ask
        self.started = time.time()
        self.last_save = self.started
        self.port = 0  # where the server listens
        self.clients_max = CLIENTS_MAX
        self.counts = Counts()
        self.logins = Logins()
        self._attacks = Seldom()
        self.saved_commits = self.commits  # at the last SAVE, or when it began

    @property
    def open(self) -> bool:
        """Whether a client may ask for everything without a password."""
        return self.users.open

    @property
    def uptime_s(self) -> int:
        """Seconds since the service was made."""
        return int(time.time() - self.started)

    @property
    def commits(self) -> int:
        """Commits of all its stores so far, of every process."""
        return sum(
            opened_of(database.store).engine().wake.log().commit
            for database in self.databases.values()
        )

    @property
    def server_name(self) -> bytes:
        """The name of the server in the reply to HELLO."""
        return b"valkey" if is_valkey(self.profile) else b"redis"

    @property
    def version_told(self) -> bytes:
        """The version of the peer whose commands are all there."""
        return VERSION_TOLD[self.profile].encode()

    # -- clients ------------------------------------------------------------------------------
    def begin(self, client: Client) -> None:
        """Register a client that has connected."""
        self.clients[client.id] = client
        self.counts.connections += 1

    def end(self, client: Client) -> None:
        """Forget a client that has gone, and its saved places in the queues of groups."""
        self.clients.pop(client.id, None)
        self.monitors.pop(client.id, None)
        for saved in client.kept_in:
            saved.forget(client)

    def attacked(self, client: Client) -> None:
        """Log that a client sent what a web page would; its connection ends."""
        self._attacks.warn(
            "possible security attack (cross-protocol): a client at %s sent POST or Host:, as a "
            "web page does that means this server; its connection is closed",
            client.address,
        )

    def users_changed(self, gone: Sequence[User], *, asked_by: Client) -> None:
        """End connections of users that are gone; the client that asked gets its reply first."""
        for client in list(self.clients.values()):
            if client.user in gone:
                client.user, client.authenticated = self.users.default, False
                client.closing = True
                if client is not asked_by and client.kill is not None:
                    client.kill()
            elif self.users.open:
                client.authenticated = True
            if client.look_again is not None:  # it may not be handed what it may no longer read
                client.look_again()

    def tell_monitors(self, client: Client, command: Command, words: list[bytes]) -> None:
        """Send a command to clients in MONITOR; as in Redis, no administration, no passwords."""
        if "admin" in command.flags:
            return
        words = without_passwords(command, words)
        where = f"{time.time():.6f} [{client.database.number} {client.address}] "
        line = b"+" + where.encode() + b" ".join(map(quoted, words)) + b"\r\n"
        for monitor in list(self.monitors.values()):
            if monitor.send is not None:
                monitor.send(line)
