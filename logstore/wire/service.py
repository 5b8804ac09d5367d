"""What all sessions of a server share: the databases, the table, the profile, who is connected.

Invariants: one service a server (or embedded client pool); sessions register here, so that CLIENT
LIST, KILL and UNBLOCK find them; the stores are opened and closed by who made it. Knows no socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.errors import OptionError
from logstore.wire.acl import RuleError
from logstore.wire.audit import Audit
from logstore.wire.command_words import quoted
from logstore.wire.commands import commands_of
from logstore.wire.denials import Denials
from logstore.wire.log_limiter import Seldom
from logstore.wire.logins import Logins
from logstore.wire.redaction import without_passwords
from logstore.wire.runner import Runner
from logstore.wire.server_stats import Counts
from logstore.wire.session import Session
from logstore.wire.slowlog import SlowLog
from logstore.wire.table import Command, Table
from logstore.wire.users import User, Users

Profile: TypeAlias = Literal["redis-8.2", "redis-8.10", "valkey-9"]
CLIENTS_MAX = 10_000
VERSION_TOLD = {"redis-8.2": "8.2.3", "redis-8.10": "8.10.0", "valkey-9": "9.1.2"}


def users_of(profile: Profile, password: bytes = b"", path: Path | None = None) -> Users:
    """The users of a server: those of an ACL file, and the default one. OptionError.

    With a password the default user needs it, unless the file says what that user is.
    """
    if profile not in get_args(Profile):
        raise OptionError(f"compat must be one of {', '.join(get_args(Profile))}: {profile!r}")
    users = Users(Table(commands_of(profile)), password)
    if path is not None:
        try:
            users.load_file(path)
        except RuleError as exc:
            raise OptionError(f"no user of {path} is taken: {exc}") from None
    return users


class Database(NamedTuple):
    """A store under its number for SELECT, and what runs steps on it."""

    number: int
    store: Store[bytes]
    runner: Runner

    def version(self, key: bytes) -> object:
        """What changes whenever the stream, or one of its groups, does."""

        def look(view: Snapshot) -> object:
            record = view.record(key)
            if record is None:
                return None
            groups = view.index.groups.of_stream(record.number)
            positions = tuple((each.number, each.position) for each in groups)
            return record.number, record.position, positions

        return snapshot.read(opened_of(self.store).engine(), look)


class Service:
    """A store, served as database 0, and the ``others`` under their numbers."""

    def __init__(
        self, store: Store[bytes], *, profile: Profile = "redis-8.10", password: bytes = b"",
        allow_flush: bool = False, shutdown: Callable[[], None] | None = None,
        others: Mapping[int, Store[bytes]] | None = None, users: Users | None = None,
        users_file: Path | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.profile: Profile = profile
        self.allow_flush = allow_flush
        self.shutdown = shutdown
        self.databases = {
            number: Database(number, each, Runner(each))
            for number, each in {0: store, **(others or {})}.items()
        }
        self.users = users or users_of(profile, password)
        self.table = self.users.table
        self.users_file = users_file  # of ACL LOAD and SAVE
        self.denials: Denials = Denials()
        self.slowlog: SlowLog = SlowLog()
        self.audit = Audit()
        self.sessions: dict[int, Session] = {}
        self.monitors: dict[int, Session] = {}  # MONITOR: they are told what others ask
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
        """Whether who comes is in without a password."""
        return self.users.open

    @property
    def uptime_s(self) -> int:
        """How long it has served."""
        return int(time.time() - self.started)

    @property
    def commits(self) -> int:
        """Commits of all its stores so far, of every process."""
        return sum(
            opened_of(each.store).engine().wake.log().commit for each in self.databases.values()
        )

    @property
    def server_name(self) -> bytes:
        """What HELLO tells as the server's name."""
        return b"valkey" if self.profile == "valkey-9" else b"redis"

    @property
    def version_told(self) -> bytes:
        """The version of the peer whose commands are all there."""
        return VERSION_TOLD[self.profile].encode()

    def session(self, *, address: str = "", local: str = "", trusted: bool = False) -> Session:
        """A new session of a client at ``address``, which came to ``local``."""
        made = Session(self, address=address, trusted=trusted)
        made.local = local or address
        self.sessions[made.id] = made
        self.counts.connections += 1
        return made

    def end(self, session: Session) -> None:
        """The client went."""
        self.sessions.pop(session.id, None)
        self.monitors.pop(session.id, None)
        for saved in session.kept_in:
            saved.forget(session)

    def attacked(self, session: Session) -> None:
        """A client sent what a web page would: its connection ends."""
        self._attacks.warn(
            "possible security attack (cross-protocol): a client at %s sent POST or Host:, as a "
            "web page does that means this server; its connection is closed", session.address,
        )  # fmt: skip

    def users_changed(self, gone: Sequence[User], *, asked_by: Session) -> None:
        """Connections of users that are gone end; who asked for it is answered first."""
        for each in list(self.sessions.values()):
            if each.user in gone:
                each.user, each.authenticated, each.closing = self.users.default, False, True
                if each is not asked_by and each.kill is not None:
                    each.kill()
            elif self.users.open:
                each.authenticated = True
            if each.look_again is not None:  # it may not be handed what it may no longer read
                each.look_again()

    def tell_monitors(self, session: Session, command: Command, words: list[bytes]) -> None:
        """Tell those in MONITOR of a command; as in Redis, not of administration nor passwords."""
        if "admin" in command.flags:
            return
        words = without_passwords(command, words)
        where = f"{time.time():.6f} [{session.database.number} {session.address}] "
        line = b"+" + where.encode() + b" ".join(map(quoted, words)) + b"\r\n"
        for each in list(self.monitors.values()):
            if each.send is not None:
                each.send(line)
