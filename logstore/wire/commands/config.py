"""CONFIG: the limits of nodes can be set; all else is fixed when the server is started."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.api.opening import opened_of
from logstore.engine.features import node_limits
from logstore.options import ENTRY_MAX_BYTES
from logstore.wire.command_words import I64_MAX, Words, shown
from logstore.wire.commands.helping import help_of
from logstore.wire.failures import Failed
from logstore.wire.globs import Glob
from logstore.wire.reply import OK, Reply
from logstore.wire.session import Session
from logstore.wire.steps import Admin, Look, Reader, Step, Tell
from logstore.wire.table import Command, Parse

if TYPE_CHECKING:
    from logstore.wire.service import Service

NODE_ENTRIES_MAX = 1_000_000
_LIMITS = {
    "stream-node-max-bytes": "node_max_bytes", "stream-node-max-entries": "node_max_entries",
}  # fmt: skip
# Settings of the server while it runs: the least value, and where each is kept.
_NUMBERS: dict[str, tuple[int, Callable[[Service], object], str]] = {
    "acllog-max-len": (0, lambda service: service.denials, "most"),
    "slowlog-log-slower-than": (-1, lambda service: service.slowlog, "slower_us"),
    "slowlog-max-len": (0, lambda service: service.slowlog, "most"),
}
_UNITS = {
    b"": 1, b"b": 1, b"k": 1000, b"kb": 1024, b"m": 1000**2, b"mb": 1024**2, b"g": 1000**3,
    b"gb": 1024**3,
}  # fmt: skip
_MEMORY = re.compile(rb"([0-9]{1,18})(b|kb?|mb?|gb?|)")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,17})")
SYNC_TOLD = {"always": "always", "everysec": "everysec", "os": "no"}


def _settings(session: Session) -> dict[str, str]:
    service, store = session.service, session.database.store
    limits, options = opened_of(store).engine().limits, opened_of(store).engine().options
    return {
        "stream-node-max-bytes": str(limits.node_max_bytes),
        "stream-node-max-entries": str(limits.node_max_entries),
        "appendonly": "yes", "appendfsync": SYNC_TOLD[options.sync],
        "maxclients": str(service.clients_max), "save": "", "maxmemory": "0",
        "databases": str(1 + max(service.databases)),
        "maxmemory-policy": "noeviction", "timeout": "0", "dir": str(store.path),
        "proto-max-bulk-len": str(512 << 20), "port": str(service.port),
        **{name: str(getattr(of(service), field)) for name, (_, of, field) in _NUMBERS.items()},
        "requirepass": "", "aclfile": str(service.users_file or ""), "notify-keyspace-events": "",
    }  # fmt: skip


def config_get(session: Session, words: Words) -> Step:
    """As CONFIG GET."""
    patterns = words.rest()

    def find(reader: Reader) -> Reply:
        known = {name.encode(): value for name, value in _settings(session).items()}
        wanted: set[bytes] = set()
        for pattern in set(patterns):
            reader.check()
            if any(char in pattern for char in (b"*", b"?", b"[")):
                wanted.update(filter(Glob(pattern, nocase=True).fits, known.keys() - wanted))
            else:
                wanted.add(pattern.lower())
        return {
            name: value.encode("utf-8", "surrogateescape")
            for name, value in known.items()
            if name in wanted
        }

    return Look(find)


def config_set(session: Session, words: Words) -> Step:
    """As CONFIG SET: of the limits of nodes; all else is fixed when the server is started."""
    given = words.rest()
    if len(given) % 2:
        raise Failed("ERR wrong number of arguments for 'config|set' command")
    known = _settings(session)
    wanted: dict[str, int] = {}
    numbers: dict[str, int] = {}
    seen: set[str] = set()
    for name, value in zip(given[::2], given[1::2], strict=True):
        text = shown(name).lower()
        if text not in known:
            raise Failed(
                f"ERR Unknown option or number of arguments for CONFIG SET - '{shown(name)}'"
            )
        if text in seen:
            raise _refused(text, "duplicate parameter")
        seen.add(text)
        if text in _LIMITS:
            wanted[_LIMITS[text]] = _limit(text, value)
        elif text in _NUMBERS:
            numbers[text] = _whole(text, value, _NUMBERS[text][0], I64_MAX)
        elif known[text].encode("utf-8", "surrogateescape") != value:
            raise _refused(text, "can't set immutable config")

    def begin() -> Reply:
        for name, number in numbers.items():
            _, of, field = _NUMBERS[name]
            setattr(of(session.service), field, number)
        return OK

    if not wanted:
        return Tell(begin)
    shared = opened_of(session.database.store).live()

    def change() -> Reply:
        node_limits.change(shared.engine, shared.committer, wanted)
        return begin()

    return Admin(change)


def _refused(name: str, why: str) -> Failed:
    return Failed(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")


def _limit(name: str, value: bytes) -> int:
    if name == "stream-node-max-bytes":
        found = _MEMORY.fullmatch(value.lower())
        if found is None:
            raise _refused(name, "argument must be a memory value")
        # More than that is, there as here, that.
        return min(int(found[1]) * _UNITS[found[2]], ENTRY_MAX_BYTES)
    return _whole(name, value, 0, NODE_ENTRIES_MAX)


def _whole(name: str, value: bytes, least: int, most: int) -> int:
    if not _INTEGER.fullmatch(value):
        raise _refused(name, "argument couldn't be parsed into an integer")
    if not least <= int(value) <= most:
        raise _refused(name, f"argument must be between {least} and {most} inclusive")
    return int(value)


def config_reset(session: Session, _words: Words) -> Step:
    """As CONFIG RESETSTAT."""

    def begin() -> Reply:
        session.service.counts.reset()
        return OK

    return Tell(begin)


def _one(name: str, arity: int, parse: Parse | None, summary: str, *parts: Command) -> Command:
    return Command(
        name, arity, parse, () if parse is None else ("admin", "noscript", "loading", "stale"),
        since="1.0.0", complexity="O(1)", group="server", summary=summary,
        categories=("slow",) if parse is None else ("admin", "slow", "dangerous"),
        subcommands={each.name: each for each in parts},
    )  # fmt: skip


_PARTS = (
    _one("config|get", -3, config_get, "Tells settings."),
    _one("config|set", -4, config_set, "Sets the limits of nodes; refuses to change all else."),
    _one("config|resetstat", 2, config_reset, "Counts from zero."),
)
COMMANDS = [
    _one("config", -2, None, "Settings.", *_PARTS, help_of("config", _PARTS, {
        "get": "<pattern> [<pattern> ...]", "set": "<directive> <value> [...]",
    })),
]  # fmt: skip
