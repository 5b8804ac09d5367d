"""What clients send when they connect, and of themselves: PING, HELLO, AUTH, SELECT, ..."""

from __future__ import annotations

from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.reply import OK, PONG, Reply, Simple
from logstore.wire.resp.words import Words, printable, shown
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command
from logstore.wire.users import DEFAULT

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


def ping(_client: Client, words: Words) -> Step:
    """As PING."""
    given = words.rest()
    if len(given) > 1:
        raise Failed("ERR wrong number of arguments for 'ping' command")
    reply: Reply = given[0] if given else PONG
    return Tell(lambda: reply, light=True)


def echo(_client: Client, words: Words) -> Step:
    """As ECHO."""
    word = words.next()
    return Tell(lambda: word, light=True)


def select(client: Client, words: Words) -> Step:
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

    return Tell(begin)


def quits(client: Client, _words: Words) -> Step:
    """As QUIT."""

    def end() -> Reply:
        client.closing = True
        return OK

    return Tell(end)


def reset(client: Client, _words: Words) -> Step:
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
    return Tell(begin)


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


def auth(client: Client, words: Words) -> Step:
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

    return Tell(begin)


def hello(client: Client, words: Words) -> Step:
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

    return Tell(begin)


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
    return Command(
        name,
        arity,
        parse,
        flags,
        since=since,
        complexity="O(1)",
        group="connection",
        summary=summary,
        categories=("fast", "connection"),
        at_once=at_once,
    )


COMMANDS = [
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
