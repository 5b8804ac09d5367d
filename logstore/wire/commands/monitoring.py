"""What monitoring tools ask a server that stands alone: ROLE, CLUSTER, SLOWLOG, MONITOR."""

from __future__ import annotations

from logstore.wire.command_words import Words, integer
from logstore.wire.commands.helping import help_of
from logstore.wire.failures import Failed
from logstore.wire.reply import OK, Reply
from logstore.wire.session import Session
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command, Parse

_NO_CLUSTER = "ERR This instance has cluster support disabled"
_SLOWLOG_COUNT = "ERR count should be greater than or equal to -1"
_CLUSTER = (
    "info", "nodes", "slots", "shards", "links", "myid", "myshardid", "keyslot", "countkeysinslot",
    "getkeysinslot", "replicas", "slaves", "meet", "forget", "failover", "reset", "replicate",
    "addslots", "delslots", "setslot", "flushslots", "saveconfig", "bumpepoch", "help",
)  # fmt: skip


def role(_session: Session, _words: Words) -> Step:
    """As ROLE: a master without replicas."""
    found: Reply = [b"master", 0, []]
    return Tell(lambda: found)


def cluster(_session: Session, _words: Words) -> Step:
    """As CLUSTER of a server that is not part of one."""
    raise Failed(_NO_CLUSTER)


def slow_get(session: Session, words: Words) -> Step:
    """As SLOWLOG GET."""
    most = integer(words.next(), _SLOWLOG_COUNT) if len(words) else 10
    if most < -1:
        raise Failed(_SLOWLOG_COUNT)
    words.end()
    return Tell(lambda: session.service.slowlog.newest(most))


def slow_length(session: Session, _words: Words) -> Step:
    """As SLOWLOG LEN."""
    return Tell(lambda: len(session.service.slowlog))


def slow_reset(session: Session, _words: Words) -> Step:
    """As SLOWLOG RESET."""

    def clear() -> Reply:
        session.service.slowlog.clear()
        return OK

    return Tell(clear)


def monitor(session: Session, _words: Words) -> Step:
    """As MONITOR: from now on it is told what others ask."""
    if session.send is None:
        raise Failed("ERR MONITOR is of a served store: a client in the same process cannot")

    def begin() -> Reply:
        session.service.monitors[session.id] = session
        return OK

    return Tell(begin)


def _one(
    name: str, arity: int, parse: Parse | None, summary: str, since: str, *parts: Command,
    flags: tuple[str, ...] = (), categories: tuple[str, ...] = ("slow",),
) -> Command:  # fmt: skip
    return Command(
        name, arity, parse, flags, since=since, complexity="O(1)", group="server",
        summary=summary, categories=categories, subcommands={each.name: each for each in parts},
    )  # fmt: skip


_ADMIN = ("admin", "slow", "dangerous")
_CLUSTER_TOLD = (
    "info", "nodes", "slots", "shards", "links", "myid", "myshardid", "keyslot", "countkeysinslot",
    "getkeysinslot", "help",
)  # fmt: skip
_SLOWLOG = tuple(
    _one(f"slowlog|{name}", arity, parse, summary, "2.2.12",
         flags=("admin", "loading", "stale"), categories=_ADMIN)
    for name, arity, parse, summary in (
        ("get", -2, slow_get, "Tells the newest commands that took long."),
        ("len", 2, slow_length, "Tells how many of them are kept."),
        ("reset", 2, slow_reset, "Forgets them."),
    )
)  # fmt: skip
COMMANDS = [
    _one("role", 1, role, "Tells that this is a master without replicas.", "2.8.12",
         flags=("noscript", "loading", "stale", "fast"),
         categories=("admin", "fast", "dangerous")),
    _one("monitor", 1, monitor, "Tells what other clients ask.", "1.0.0",
         flags=("admin", "noscript", "loading", "stale"), categories=_ADMIN),
    _one("cluster", -2, None, "Refused: this is no cluster.", "3.0.0", *(
        _one(f"cluster|{name}", -2, cluster, "Refused: this is no cluster.", "3.0.0",
             flags=(*(() if name in _CLUSTER_TOLD else ("admin",)), "stale"),
             categories=("slow",) if name in _CLUSTER_TOLD else _ADMIN)
        for name in _CLUSTER
    )),
    _one("slowlog", -2, None, "Slow commands.", "2.2.12", *_SLOWLOG,
         help_of("slowlog", _SLOWLOG, {"get": "[<count>]"})),
]  # fmt: skip
