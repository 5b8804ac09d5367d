"""What clients send when they connect, and of themselves: PING, HELLO, AUTH, SELECT, CLIENT, ..."""

from __future__ import annotations

import hmac
import time

from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import NO_REPLY, OK, PONG, Reply, Simple, Verbatim
from logstore.wire.session import Session
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command, Parse
from logstore.wire.words import Words

_DENIED = "WRONGPASS invalid username-password pair or user is disabled."
_NO_PASSWORD = (
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?"
)
_NAME = "ERR Client names cannot contain spaces, newlines or special characters."
_HELP = (
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME", "    The name of this connection.",
    "ID", "    The number of this connection.",
    "INFO", "    What is known of this connection.",
    "KILL <ip:port> | ID <id>", "    End a connection.",
    "LIST", "    What is known of all connections.",
    "NO-EVICT (ON|OFF)", "    Taken, without effect.",
    "NO-TOUCH (ON|OFF)", "    Taken, without effect.",
    "SETINFO <option> <value>", "    Name the client's library.",
    "SETNAME <name>", "    Name this connection.",
    "UNBLOCK <id> [TIMEOUT|ERROR]", "    End the wait of another connection.",
    "HELP", "    Print this help.",
)  # fmt: skip


def ping(_session: Session, words: Words) -> Step:
    """As PING."""
    given = words.rest()
    if len(given) > 1:
        raise Failed("ERR wrong number of arguments for 'ping' command")
    reply: Reply = given[0] if given else PONG
    return Tell(lambda: reply)


def echo(_session: Session, words: Words) -> Step:
    """As ECHO."""
    word = words.next()
    return Tell(lambda: word)


def select(_session: Session, words: Words) -> Step:
    """As SELECT: there is one database, number 0."""
    number = words.integer()
    if number != 0:
        raise Failed("ERR DB index is out of range")
    return Tell(lambda: OK)


def quits(session: Session, _words: Words) -> Step:
    """As QUIT."""

    def end() -> Reply:
        session.closing = True
        return OK

    return Tell(end)


def reset(session: Session, _words: Words) -> Step:
    """As RESET."""

    def begin() -> Reply:
        session.reset()
        return Simple(b"RESET")

    session.multi = None
    return Tell(begin)


# -- who it is ------------------------------------------------------------------------------------
def _login(session: Session, user: bytes, password: bytes) -> None:
    wanted = session.service.password
    fits = hmac.compare_digest(password, wanted) if wanted else user == b"default"
    if user != b"default" or not fits:
        raise Failed(_DENIED)
    session.authenticated = True


def auth(session: Session, words: Words) -> Step:
    """As AUTH."""
    given = words.rest()
    if len(given) > 2:
        raise Failed(SYNTAX)
    if len(given) == 1 and not session.service.password:
        raise Failed(_NO_PASSWORD)
    user, password = given if len(given) == 2 else (b"default", given[0])
    _login(session, user, password)
    return Tell(lambda: OK)


def hello(session: Session, words: Words) -> Step:
    """As HELLO: chooses RESP2 or RESP3, may log in and name the connection."""
    protocol = session.protocol
    if len(words):
        protocol = words.integer("ERR Protocol version is not an integer or out of range")
        if protocol not in (2, 3):
            raise Failed("NOPROTO unsupported protocol version")
    name: bytes | None = None
    while len(words):
        word = words.option()
        if word == b"AUTH" and len(words) >= 2:
            _login(session, words.next(), words.next())
        elif word == b"SETNAME" and len(words):
            name = _checked(words.next())
        else:
            raise Failed(f"ERR Syntax error in HELLO option '{word.decode(errors='replace')}'")
    if not session.authenticated:
        raise Failed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
            "select the RESP protocol version at the same time"
        )

    def begin() -> Reply:
        session.protocol = protocol
        if name is not None:
            session.name = name
        service = session.service
        return {
            b"server": service.server_name,
            b"version": service.version_told,
            b"proto": protocol,
            b"id": session.id,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }

    return Tell(begin)


def _checked(name: bytes) -> bytes:
    if any(not 33 <= byte <= 126 for byte in name):
        raise Failed(_NAME)
    return name


# -- CLIENT ---------------------------------------------------------------------------------------
def client_id(session: Session, _words: Words) -> Step:
    """As CLIENT ID."""
    return Tell(lambda: session.id)


def client_name(session: Session, _words: Words) -> Step:
    """As CLIENT GETNAME."""
    return Tell(lambda: session.name or None)


def client_set_name(session: Session, words: Words) -> Step:
    """As CLIENT SETNAME."""
    name = _checked(words.next())

    def begin() -> Reply:
        session.name = name
        return OK

    return Tell(begin)


def client_set_info(session: Session, words: Words) -> Step:
    """As CLIENT SETINFO."""
    option, value = words.next(), words.next()
    if option.lower() not in (b"lib-name", b"lib-ver"):
        raise Failed(f"ERR Unrecognized option '{option.decode(errors='replace')}'")
    if any(not 33 <= byte <= 126 for byte in value):
        shown = option.lower().decode()
        raise Failed(f"ERR {shown} cannot contain spaces, newlines or special characters.")
    session.library[option.lower().decode()] = value
    return Tell(lambda: OK)


def line_of(session: Session) -> bytes:
    """A connection as CLIENT LIST shows it."""
    library = session.library
    fields = {
        "id": session.id, "addr": session.address, "name": session.name.decode("latin-1"),
        "age": int(time.time() - session.born), "db": 0,
        "multi": -1 if session.multi is None else len(session.multi.steps),
        "watch": len(session.watched), "cmd": session.last_command, "user": "default",
        "resp": session.protocol, "lib-name": library.get("lib-name", b"").decode("latin-1"),
        "lib-ver": library.get("lib-ver", b"").decode("latin-1"),
    }  # fmt: skip
    return " ".join(f"{name}={value}" for name, value in fields.items()).encode() + b"\n"


def client_list(session: Session, words: Words) -> Step:
    """As CLIENT LIST, also of some by ID."""
    ids: set[int] | None = None
    if words.take(b"ID"):
        ids = {words.integer("ERR Invalid client ID") for _ in range(len(words))}
    elif words.take(b"TYPE"):
        words.next()
    words.end()
    sessions = session.service.sessions

    def told() -> Reply:
        shown = [each for each in list(sessions.values()) if ids is None or each.id in ids]
        return Verbatim(b"".join(map(line_of, shown)))

    return Tell(told)


def client_info(session: Session, _words: Words) -> Step:
    """As CLIENT INFO."""
    return Tell(lambda: Verbatim(line_of(session)))


def client_kill(session: Session, words: Words) -> Step:
    """As CLIENT KILL, by address or by ID."""
    sessions = session.service.sessions
    given = words.rest()
    if len(given) == 1:
        address = given[0].decode(errors="replace")

        def by_address() -> Reply:
            found = [each for each in list(sessions.values()) if each.address == address]
            if not found:
                raise Failed("ERR No such client")
            _end(found)
            return OK

        return Tell(by_address)
    wanted = _Filter(given)

    def by_filter() -> Reply:
        found = [each for each in list(sessions.values()) if wanted.fits(each, session)]
        _end(found)
        return len(found)

    return Tell(by_filter)


class _Filter:
    """Which connections CLIENT KILL means."""

    def __init__(self, given: list[bytes]) -> None:
        self._ids: set[int] = set()
        self._addresses: set[str] = set()
        self._skips_me = True
        if len(given) % 2:
            raise Failed(SYNTAX)
        for name, value in zip(given[::2], given[1::2], strict=True):
            self._take(name.upper(), value)

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"ID":
            if not value.isdigit() or int(value) < 1:
                raise Failed("ERR client-id should be greater than 0")
            self._ids.add(int(value))
        elif name == b"ADDR":
            self._addresses.add(value.decode(errors="replace"))
        elif name == b"SKIPME" and value.lower() in (b"yes", b"no"):
            self._skips_me = value.lower() == b"yes"
        elif name not in (b"USER", b"TYPE"):
            raise Failed(SYNTAX)

    def fits(self, other: Session, me: Session) -> bool:
        """Whether a connection is meant."""
        if other is me and self._skips_me:
            return False
        if self._ids and other.id not in self._ids:
            return False
        return not self._addresses or other.address in self._addresses


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


def client_switch(_session: Session, words: Words) -> Step:
    """As CLIENT NO-EVICT and NO-TOUCH: taken, without effect."""
    if words.option() not in (b"ON", b"OFF"):
        raise Failed(SYNTAX)
    return Tell(lambda: OK)


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


def _client(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    return Command(
        f"client|{name}", arity, parse, _FLAGS, since=since, complexity="O(1)",
        group="connection", summary=summary, categories=("slow", "connection"),
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
    _client("no-evict", 3, client_switch, "7.0.0", "Taken, without effect."),
    _client("no-touch", 3, client_switch, "7.2.0", "Taken, without effect."),
    _client("reply", 3, client_reply, "3.2.0", "Says whether replies are sent."),
    _client("help", 2, client_help, "5.0.0", "Tells the subcommands."),
]


def _plain(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    return Command(
        name, arity, parse, (*_FLAGS, "fast"), since=since, complexity="O(1)",
        group="connection", summary=summary, categories=("fast", "connection"),
    )  # fmt: skip


COMMANDS = [
    _plain("ping", -1, ping, "1.0.0", "Answers."),
    _plain("echo", 2, echo, "1.0.0", "Answers what it was sent."),
    _plain("select", 2, select, "1.0.0", "Chooses a database: there is number 0."),
    _plain("quit", -1, quits, "1.0.0", "Ends the connection."),
    _plain("reset", 1, reset, "6.2.0", "As if the connection had just come."),
    _plain("auth", -2, auth, "1.0.0", "Logs in."),
    _plain("hello", -1, hello, "6.0.0", "Chooses the protocol, and logs in."),
    Command("client", -2, None, since="2.4.0", group="connection", summary="Connections.",
            categories=("slow",), subcommands={each.name: each for each in _CLIENT}),
]  # fmt: skip
