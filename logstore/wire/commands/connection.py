"""What clients send when they connect, and of themselves: PING, HELLO, AUTH, SELECT, ACL, ..."""

from __future__ import annotations

import hmac

from logstore.wire.commands.helping import help_of
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import OK, PONG, Reply, Simple
from logstore.wire.session import Session
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command, Parse
from logstore.wire.words import Words, printable, shown

_DENIED = "WRONGPASS invalid username-password pair or user is disabled."
_NO_PASSWORD = (
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?"
)
_NAME = "ERR Client names cannot contain spaces, newlines or special characters."


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


def select(session: Session, words: Words) -> Step:
    """As SELECT: number 0, and those that stores were mapped to.

    What a transaction does, and what it watches, is of one store.
    """
    database = session.service.databases.get(words.integer())
    if database is None:
        raise Failed("ERR DB index is out of range")
    if database is not session.database and (session.multi is not None or session.watched):
        raise Failed("ERR a transaction, and what it watches, is of one database: SELECT before")

    def begin() -> Reply:
        session.database = database
        return OK

    return Tell(begin)


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
        session.delay_s = session.service.logins.failed(session.address, user)
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
            name = checked_name(words.next())
        else:
            raise Failed(f"ERR Syntax error in HELLO option '{shown(word)}'")
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


def checked_name(name: bytes) -> bytes:
    if not printable(name):
        raise Failed(_NAME)
    return name


def who_am_i(_session: Session, _words: Words) -> Step:
    """As ACL WHOAMI."""
    return Tell(lambda: b"default")


def categories(session: Session, words: Words) -> Step:
    """As ACL CAT."""
    commands = session.service.table.commands.values()
    if not len(words):
        found = {category for each in commands for category in each.categories}
        return Tell(lambda: [each.encode() for each in sorted(found)])
    wanted = shown(words.next()).lower()
    named = sorted(
        each.name for command in commands for each in (command, *command.subcommands.values())
        if wanted in each.categories
    )  # fmt: skip
    if not named:
        raise Failed(f"ERR Unknown category '{wanted}'")
    return Tell(lambda: [each.encode() for each in named])


_FLAGS = ("noscript", "loading", "stale")


def _plain(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    return Command(
        name, arity, parse, (*_FLAGS, "fast"), since=since, complexity="O(1)",
        group="connection", summary=summary, categories=("fast", "connection"),
    )  # fmt: skip


def _acl(name: str, arity: int, parse: Parse | None, summary: str, *parts: Command) -> Command:
    return Command(
        name, arity, parse, _FLAGS, since="6.0.0", complexity="O(1)", group="server",
        summary=summary, categories=("slow",), subcommands={each.name: each for each in parts},
    )  # fmt: skip


_ACL = (
    _acl("acl|whoami", 2, who_am_i, "Tells the user's name."),
    _acl("acl|cat", -2, categories, "Tells the categories of commands."),
)
COMMANDS = [
    _plain("ping", -1, ping, "1.0.0", "Answers."),
    _plain("echo", 2, echo, "1.0.0", "Answers what it was sent."),
    _plain("select", 2, select, "1.0.0", "Chooses a database that a store is mapped to."),
    _plain("quit", -1, quits, "1.0.0", "Ends the connection."),
    _plain("reset", 1, reset, "6.2.0", "As if the connection had just come."),
    _plain("auth", -2, auth, "1.0.0", "Logs in."),
    _plain("hello", -1, hello, "6.0.0", "Chooses the protocol, and logs in."),
    _acl("acl", -2, None, "Who may what.", *_ACL, help_of("acl", _ACL, {"cat": "[<category>]"})),
]  # fmt: skip
