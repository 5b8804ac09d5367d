"""CLIENT and its subcommands: what is known of connections, and ending them or their waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from logstore.wire.command_words import Words, integer, printable, shown
from logstore.wire.commands.connection import checked_name
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import NO_REPLY, OK, Reply, Simple, Verbatim
from logstore.wire.session import Session
from logstore.wire.steps import Look, Reader, Step, Tell
from logstore.wire.table import Command, Parse

if TYPE_CHECKING:
    from logstore.wire.service import Service
    from logstore.wire.users import User

NORMAL = b"normal"
_KINDS = frozenset({NORMAL, b"slave", b"replica", b"master", b"pubsub"})
_NO_ID = "ERR client-id should be greater than 0"

_HELP = (
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME", "    The name of this connection.",
    "ID", "    The number of this connection.",
    "INFO", "    What is known of this connection.",
    "KILL <ip:port> | ID <id>", "    End a connection.",
    "LIST", "    What is known of all connections.",
    "NO-EVICT (ON|OFF)", "    Sets a flag of CLIENT LIST, without effect.",
    "NO-TOUCH (ON|OFF)", "    Sets a flag of CLIENT LIST, without effect.",
    "SETINFO <option> <value>", "    Name the client's library.",
    "SETNAME <name>", "    Name this connection.",
    "UNBLOCK <id> [TIMEOUT|ERROR]", "    End the wait of another connection.",
    "HELP", "    Print this help.",
)  # fmt: skip


def client_id(session: Session, _words: Words) -> Step:
    """As CLIENT ID."""
    return Tell(lambda: session.id)


def client_name(session: Session, _words: Words) -> Step:
    """As CLIENT GETNAME."""
    return Tell(lambda: session.name or None)


def client_set_name(session: Session, words: Words) -> Step:
    """As CLIENT SETNAME."""
    name = checked_name(words.next())

    def begin() -> Reply:
        session.name = name
        return OK

    return Tell(begin)


def client_set_info(session: Session, words: Words) -> Step:
    """As CLIENT SETINFO."""
    option, value = words.next(), words.next()
    if option.lower() not in (b"lib-name", b"lib-ver"):
        raise Failed(f"ERR Unrecognized option '{shown(option)}'")
    if not printable(value):
        name = option.lower().decode()
        raise Failed(f"ERR {name} cannot contain spaces, newlines or special characters.")
    session.library[option.lower().decode()] = value
    return Tell(lambda: OK)


def _flags(session: Session) -> str:
    """The flags of CLIENT LIST, in the peers' order; N if there are none."""
    known = [
        ("x", session.multi is not None), ("b", session.unblock is not None),
        ("c", session.closing), ("U", session.address == "unix"),
        ("e", "e" in session.marks), ("T", "T" in session.marks),
    ]  # fmt: skip
    return "".join(letter for letter, holds in known if holds) or "N"


def line_of(session: Session) -> bytes:
    """A connection as CLIENT LIST shows it."""
    library = session.library
    fields = {
        "id": session.id, "addr": session.address, "laddr": session.local,
        "name": session.name.decode("latin-1"),
        "age": int(time.time() - session.born), "flags": _flags(session),
        "db": session.database.number,
        "multi": -1 if session.multi is None else len(session.multi.steps),
        "watch": len(session.watched), "cmd": session.last_command,
        "user": session.user.name.decode("utf-8", "replace"),
        "resp": session.protocol, "lib-name": library.get("lib-name", b"").decode("latin-1"),
        "lib-ver": library.get("lib-ver", b"").decode("latin-1"),
    }  # fmt: skip
    return " ".join(f"{name}={value}" for name, value in fields.items()).encode() + b"\n"


def client_list(session: Session, words: Words) -> Step:
    """As CLIENT LIST, also of some by ID or of a type."""
    ids: list[int] | None = None
    kind: bytes | None = None
    if words.take(b"TYPE"):
        kind = _kind(words.next())
    elif words.take(b"ID"):
        if not len(words):
            raise Failed(SYNTAX)
        ids = [words.integer("ERR Invalid client ID") for _ in range(len(words))]
    words.end()
    sessions = session.service.sessions

    def find(_reader: Reader) -> Reply:
        if kind not in (None, NORMAL):
            return Verbatim(b"")
        found = list(sessions.values()) if ids is None else map(sessions.get, ids)
        return Verbatim(b"".join([line_of(each) for each in found if each is not None]))

    return Look(find)


def _kind(word: bytes) -> bytes:
    """A type of clients; all of them are normal, since there is neither replica nor pub/sub."""
    kind = word.lower()
    if kind not in _KINDS:
        raise Failed(f"ERR Unknown client type '{shown(word)}'")
    return kind


def client_info(session: Session, _words: Words) -> Step:
    """As CLIENT INFO."""
    return Tell(lambda: Verbatim(line_of(session)))


def client_kill(session: Session, words: Words) -> Step:
    """As CLIENT KILL, by address or by ID."""
    sessions = session.service.sessions
    given = words.rest()
    if len(given) == 1:
        address = given[0]

        def by_address() -> Reply:
            found = [each for each in list(sessions.values()) if each.address.encode() == address]
            if not found:
                raise Failed("ERR No such client")
            _end(found)
            return OK

        return Tell(by_address)
    wanted = _Filter(given, session.service)

    def by_filter() -> Reply:
        found = [each for each in list(sessions.values()) if wanted.fits(each, session)]
        _end(found)
        return len(found)

    return Tell(by_filter)


class _Filter:
    """Which connections CLIENT KILL means; those that all of the options fit."""

    def __init__(self, given: list[bytes], service: Service) -> None:
        self._several = service.profile == "valkey-9"  # IDs; else the last one counts
        self._users = service.users
        self._user: User | None = None
        self._ids: set[int] | None = None
        self._address: bytes | None = None
        self._local: bytes | None = None
        self._kind = NORMAL
        self._age_s = 0
        self._skips_me = True
        if len(given) % 2:
            raise Failed(SYNTAX)
        for name, value in zip(given[::2], given[1::2], strict=True):
            self._take(name.upper(), value)

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"ID":
            number = integer(value, _NO_ID)
            if number < 1:
                raise Failed(_NO_ID)
            self._ids = (self._ids or set()) | {number} if self._several else {number}
        elif name == b"ADDR":
            self._address = value
        elif name == b"LADDR":
            self._local = value
        elif name == b"TYPE":
            self._kind = _kind(value)
        elif name == b"USER":
            self._user = self._users.by_name.get(value)
            if self._user is None:
                raise Failed(f"ERR No such user '{shown(value)}'")
        elif name == b"MAXAGE":
            self._age_s = integer(value, "ERR maxage is not an integer or out of range")
            if self._age_s < 1:
                raise Failed("ERR maxage should be greater than 0")
        elif name == b"SKIPME" and value.lower() in (b"yes", b"no"):
            self._skips_me = value.lower() == b"yes"
        else:
            raise Failed(SYNTAX)

    def fits(self, other: Session, me: Session) -> bool:
        """Whether a connection is meant."""
        if (other is me and self._skips_me) or self._kind != NORMAL:
            return False
        if self._ids is not None and other.id not in self._ids:
            return False
        if self._user is not None and other.user is not self._user:
            return False
        if self._age_s and time.time() - other.born < self._age_s:
            return False
        if self._local is not None and other.local.encode() != self._local:
            return False
        return self._address is None or other.address.encode() == self._address


def _end(sessions: list[Session]) -> None:
    for each in sessions:
        each.closing = True
        if each.kill is not None:
            each.kill()


def client_unblock(session: Session, words: Words) -> Step:
    """As CLIENT UNBLOCK."""
    number = words.integer()
    how = words.option() if len(words) else b"TIMEOUT"
    if how not in (b"TIMEOUT", b"ERROR"):
        raise Failed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")

    def wake() -> Reply:
        other = session.service.sessions.get(number)
        if other is None or other.unblock is None:
            return 0
        other.unblock(how == b"ERROR")
        return 1

    return Tell(wake)


def _switch(mark: str) -> Parse:
    """As CLIENT NO-EVICT and NO-TOUCH: shown by CLIENT LIST, else without effect."""

    def parse(session: Session, words: Words) -> Step:
        mode = words.option()
        if mode not in (b"ON", b"OFF"):
            raise Failed(SYNTAX)

        def begin() -> Reply:
            (session.marks.add if mode == b"ON" else session.marks.discard)(mark)
            return OK

        return Tell(begin)

    return parse


def client_reply(session: Session, words: Words) -> Step:
    """As CLIENT REPLY."""
    mode = words.option()
    if mode not in (b"ON", b"OFF", b"SKIP"):
        raise Failed(SYNTAX)

    def begin() -> Reply:
        session.replies = mode.decode()
        return OK if mode == b"ON" else NO_REPLY

    return Tell(begin)


def client_help(_session: Session, _words: Words) -> Step:
    """As CLIENT HELP."""
    return Tell(lambda: [Simple(line.encode()) for line in _HELP])


_FLAGS = ("noscript", "loading", "stale")


_ADMIN = ("kill", "list", "no-evict", "unblock")


def _client(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    admin = name in _ADMIN
    flags = ("loading", "stale") if name == "help" else (*(["admin"] if admin else []), *_FLAGS)
    return Command(
        f"client|{name}", arity, parse, flags, since=since, complexity="O(1)",
        group="connection", summary=summary,
        categories=("slow", "connection", *(["admin", "dangerous"] if admin else [])),
    )  # fmt: skip


_CLIENT = [
    _client("id", 2, client_id, "5.0.0", "Tells the number of the connection."),
    _client("getname", 2, client_name, "2.6.9", "Tells the name of the connection."),
    _client("setname", 3, client_set_name, "2.6.9", "Names the connection."),
    _client("setinfo", 4, client_set_info, "7.2.0", "Names the client's library."),
    _client("list", -2, client_list, "2.4.0", "Tells of all connections."),
    _client("info", 2, client_info, "6.2.0", "Tells of the connection."),
    _client("kill", -3, client_kill, "2.4.0", "Ends connections."),
    _client("unblock", -3, client_unblock, "5.0.0", "Ends the wait of a connection."),
    _client("no-evict", 3, _switch("e"), "7.0.0", "Sets a flag, without effect."),
    _client("no-touch", 3, _switch("T"), "7.2.0", "Sets a flag, without effect."),
    _client("reply", 3, client_reply, "3.2.0", "Says whether replies are sent."),
    _client("help", 2, client_help, "5.0.0", "Tells the subcommands."),
]


COMMANDS = [
    Command("client", -2, None, since="2.4.0", group="connection", summary="Connections.",
            categories=("slow",), subcommands={each.name: each for each in _CLIENT}),
]  # fmt: skip
