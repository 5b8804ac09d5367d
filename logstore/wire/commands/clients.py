"""Connections: what clients send of themselves (PING, HELLO, AUTH, SELECT, ..), and CLIENT."""

from __future__ import annotations

import time
from functools import partial

from logstore.wire.resp.reply import NO_REPLY, OK, PONG, SYNTAX, Failed, Reply, Simple, Verbatim
from logstore.wire.resp.words import Words, integer, printable, shown
from logstore.wire.service import Client, Parse, Service
from logstore.wire.steps import CommandStep, Reader, ReadStep, ReplyStep, done
from logstore.wire.table import Command, constant, is_valkey
from logstore.wire.users import DEFAULT, User

_NOT_LOGGED_IN = (
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP "
    "protocol version at the same time"
)
_WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."
_NO_PASSWORD = (
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?"
)
_NAME = "ERR Client names cannot contain spaces, newlines or special characters."


# -- what clients send of themselves ----------------------------------------------------------
def ping(_client: Client, words: Words) -> CommandStep:
    """As PING."""
    given = words.rest()
    if len(given) > 1:
        raise Failed("ERR wrong number of arguments for 'ping' command")
    reply: Reply = given[0] if given else PONG
    return ReplyStep(lambda: reply, light=True)


def echo(_client: Client, words: Words) -> CommandStep:
    """As ECHO."""
    word = words.next()
    return ReplyStep(lambda: word, light=True)


def select(client: Client, words: Words) -> CommandStep:
    """As SELECT: number 0, and those that stores were mapped to.

    What a transaction does, and what it watches, is of one store.
    """
    database = client.service.databases.get(words.integer())
    if database is None:
        raise Failed("ERR DB index is out of range")
    if database is not client.database and (client.multi is not None or client.watched):
        raise Failed("ERR a transaction, and what it watches, is of one database: SELECT before")

    def begin() -> Reply:
        client.database = database
        return OK

    return ReplyStep(begin)


def quits(client: Client, _words: Words) -> CommandStep:
    """As QUIT."""

    def end() -> Reply:
        client.closing = True
        return OK

    return ReplyStep(end)


def reset(client: Client, _words: Words) -> CommandStep:
    """As RESET: as if it had just come."""

    def begin() -> Reply:
        client.unwatch()
        client.protocol = 2
        client.database = client.service.databases[0]
        client.name = b""
        client.marks.clear()
        client.service.monitors.pop(client.id, None)
        client.user = client.service.users.default
        client.authenticated = client.service.open
        if client.replies == "OFF":  # after SKIP, as in Redis, this one reply is skipped
            client.replies = "ON"
        return Simple(b"RESET")

    client.multi = None
    return ReplyStep(begin)


# -- who it is ------------------------------------------------------------------------------------
def _login(client: Client, name: bytes, password: bytes, command: bytes) -> None:
    """Log in as AUTH does; ``command``: the word that asked for it. Failed.

    A failure delays the answer. A transaction is answered as a whole, so that behind a failure in
    it no password is looked at: many guesses would cost as long as one.
    """
    service, multi = client.service, client.multi
    if multi is not None and multi.login_failed:
        raise Failed(_WRONG_PASSWORD)
    user = service.users.login(name, password)
    if user is None:
        client.deny("auth", command, name)
        client.delay_s = service.logins.failed(client.address, name)
        if multi is not None:
            multi.login_failed = True
        raise Failed(_WRONG_PASSWORD)
    client.user, client.authenticated = user, True
    service.audit.login(client)


def auth(client: Client, words: Words) -> CommandStep:
    """As AUTH."""
    command, given = words.said(0), words.rest()
    if len(given) > 2:
        raise Failed(SYNTAX)
    user, password = given if len(given) == 2 else (DEFAULT, given[0])

    def begin() -> Reply:
        if len(given) == 1 and client.service.users.default.rights.no_password:
            raise Failed(_NO_PASSWORD)
        _login(client, user, password, command)
        return OK

    return ReplyStep(begin)


def hello(client: Client, words: Words) -> CommandStep:
    """As HELLO: chooses RESP2 or RESP3, may log in and name the connection."""
    protocol = client.protocol
    if len(words):
        protocol = words.integer("ERR Protocol version is not an integer or out of range")
        if protocol not in (2, 3):
            raise Failed("NOPROTO unsupported protocol version")
    name: bytes | None = None
    login: tuple[bytes, bytes] | None = None
    while len(words):
        word = words.option()
        if word == b"AUTH" and len(words) >= 2:
            login = words.next(), words.next()
        elif word == b"SETNAME" and len(words):
            name = checked_name(words.next())
        else:
            raise Failed(f"ERR Syntax error in HELLO option '{shown(word)}'")
    command = words.said(0)

    def begin() -> Reply:
        if login is not None:
            _login(client, *login, command)
        if not client.authenticated:
            raise Failed(_NOT_LOGGED_IN)
        client.protocol = protocol
        if name is not None:
            client.name = name
        service = client.service
        return {
            b"server": service.server_name,
            b"version": service.version_told,
            b"proto": protocol,
            b"id": client.id,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }

    return ReplyStep(begin)


def checked_name(name: bytes) -> bytes:
    if not printable(name):
        raise Failed(_NAME)
    return name


_ALWAYS = ("noscript", "loading", "stale", "fast", "no_auth", "allow_busy")


def _plain(
    name: str,
    arity: int,
    parse: Parse,
    since: str,
    summary: str,
    *flags: str,
    at_once: bool = False,
) -> Command:
    return constant(
        name, arity, parse, since, summary, group="connection", flags=flags,
        categories=("fast", "connection"), at_once=at_once,
    )  # fmt: skip


_CONNECTION = [
    _plain("ping", -1, ping, "1.0.0", "Answers.", "fast"),
    _plain("echo", 2, echo, "1.0.0", "Answers what it was sent.", "loading", "stale", "fast"),
    _plain("select", 2, select, "1.0.0", "Chooses a database that a store is mapped to.",
           "loading", "stale", "fast"),
    _plain("quit", -1, quits, "1.0.0", "Ends the connection.", *_ALWAYS,
           at_once=True),
    _plain("reset", 1, reset, "6.2.0", "As if the connection had just come.", *_ALWAYS,
           at_once=True),
    _plain("auth", -2, auth, "1.0.0", "Logs in.", *_ALWAYS),
    _plain("hello", -1, hello, "6.0.0", "Chooses the protocol, and logs in.", *_ALWAYS),
]  # fmt: skip


# -- CLIENT -----------------------------------------------------------------------------------
NORMAL = b"normal"
_KINDS = frozenset({NORMAL, b"slave", b"replica", b"master", b"pubsub"})
_NO_ID = "ERR client-id should be greater than 0"

_HELP = (
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    The name of this connection.",
    "ID",
    "    The number of this connection.",
    "INFO",
    "    What is known of this connection.",
    "KILL <ip:port> | ID <id>",
    "    End a connection.",
    "LIST",
    "    What is known of all connections.",
    "NO-EVICT (ON|OFF)",
    "    Sets a flag of CLIENT LIST, without effect.",
    "NO-TOUCH (ON|OFF)",
    "    Sets a flag of CLIENT LIST, without effect.",
    "SETINFO <option> <value>",
    "    Name the client's library.",
    "SETNAME <name>",
    "    Name this connection.",
    "UNBLOCK <id> [TIMEOUT|ERROR]",
    "    End the wait of another connection.",
    "HELP",
    "    Print this help.",
)


def client_id(client: Client, _words: Words) -> CommandStep:
    """As CLIENT ID."""
    return ReplyStep(lambda: client.id)


def client_name(client: Client, _words: Words) -> CommandStep:
    """As CLIENT GETNAME."""
    return ReplyStep(lambda: client.name or None)


def client_set_name(client: Client, words: Words) -> CommandStep:
    """As CLIENT SETNAME."""
    name = checked_name(words.next())

    def begin() -> Reply:
        client.name = name
        return OK

    return ReplyStep(begin)


def client_set_info(client: Client, words: Words) -> CommandStep:
    """As CLIENT SETINFO."""
    option, value = words.next(), words.next()
    if option.lower() not in (b"lib-name", b"lib-ver"):
        raise Failed(f"ERR Unrecognized option '{shown(option)}'")
    if not printable(value):
        name = option.lower().decode()
        raise Failed(f"ERR {name} cannot contain spaces, newlines or special characters.")

    def begin() -> Reply:
        client.library[option.lower().decode()] = value
        return OK

    return ReplyStep(begin)


def client_list(client: Client, words: Words) -> CommandStep:
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
    clients = client.service.clients

    def find(_reader: Reader) -> Reply:
        if kind not in (None, NORMAL):
            return Verbatim(b"")
        listed = list(clients.values()) if ids is None else map(clients.get, ids)
        return Verbatim(b"".join([known.line() for known in listed if known is not None]))

    return ReadStep(find)


def _kind(word: bytes) -> bytes:
    """A type of clients; all of them are normal, since there is neither replica nor pub/sub."""
    kind = word.lower()
    if kind not in _KINDS:
        raise Failed(f"ERR Unknown client type '{shown(word)}'")
    return kind


def client_info(client: Client, _words: Words) -> CommandStep:
    """As CLIENT INFO."""
    return ReplyStep(lambda: Verbatim(client.line()))


def client_kill(client: Client, words: Words) -> CommandStep:
    """As CLIENT KILL, by address or by ID."""
    clients = client.service.clients
    given = words.rest()
    if len(given) == 1:
        address = given[0]

        def by_address() -> Reply:
            meant = [other for other in list(clients.values()) if other.address.encode() == address]
            if not meant:
                raise Failed("ERR No such client")
            _end(meant)
            return OK

        return ReplyStep(by_address)
    wanted = _Filter(given, client.service)

    def by_filter() -> Reply:
        meant = [other for other in list(clients.values()) if wanted.fits(other, client)]
        _end(meant)
        return len(meant)

    return ReplyStep(by_filter)


class _Filter:
    """Which connections CLIENT KILL means; those that all of the options fit."""

    def __init__(self, given: list[bytes], service: Service) -> None:
        self._several = is_valkey(service.profile)  # IDs; else the last one counts
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

    def fits(self, other: Client, me: Client) -> bool:
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


def _end(clients: list[Client]) -> None:
    for client in clients:
        client.closing = True
        if client.kill is not None:
            client.kill()


def client_unblock(client: Client, words: Words) -> CommandStep:
    """As CLIENT UNBLOCK."""
    number = words.integer()
    how = words.option() if len(words) else b"TIMEOUT"
    if how not in (b"TIMEOUT", b"ERROR"):
        raise Failed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")

    def wake() -> Reply:
        other = client.service.clients.get(number)
        if other is None or other.unblock is None:
            return 0
        other.unblock(how == b"ERROR")
        return 1

    return ReplyStep(wake)


def _switch(mark: str) -> Parse:
    """As CLIENT NO-EVICT and NO-TOUCH: shown by CLIENT LIST, else without effect."""

    def parse(client: Client, words: Words) -> CommandStep:
        mode = words.option()
        if mode not in (b"ON", b"OFF"):
            raise Failed(SYNTAX)

        mark_it = client.marks.add if mode == b"ON" else client.marks.discard
        return done(partial(mark_it, mark))

    return parse


def client_reply(client: Client, words: Words) -> CommandStep:
    """As CLIENT REPLY."""
    mode = words.option()
    if mode not in (b"ON", b"OFF", b"SKIP"):
        raise Failed(SYNTAX)

    def begin() -> Reply:
        client.replies = mode.decode()
        return OK if mode == b"ON" else NO_REPLY

    return ReplyStep(begin)


def client_help(_client: Client, _words: Words) -> CommandStep:
    """As CLIENT HELP."""
    return ReplyStep(lambda: [Simple(line.encode()) for line in _HELP])


_FLAGS = ("noscript", "loading", "stale")


_ADMIN = ("kill", "list", "no-evict", "unblock")


def _client(
    name: str, arity: int, parse: Parse, since: str, summary: str, *valkey_flags: str
) -> Command:
    admin = name in _ADMIN
    flags = ("loading", "stale") if name == "help" else (*(["admin"] if admin else []), *_FLAGS)
    categories = ("slow", "connection", *(["admin", "dangerous"] if admin else []))
    return constant(
        f"client|{name}", arity, parse, since, summary, group="connection", flags=flags,
        categories=categories, valkey_flags=valkey_flags,
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
    _client("reply", 3, client_reply, "3.2.0", "Says whether replies are sent.", "no_multi"),
    _client("help", 2, client_help, "5.0.0", "Tells the subcommands."),
]


COMMANDS = [
    *_CONNECTION,
    Command("client", -2, None, since="2.4.0", group="connection", summary="Connections.",
            categories=("slow",), subcommands={command.name: command for command in _CLIENT}),
]  # fmt: skip
