"""CONFIG: settings are fixed when the store is made or the server started."""

from __future__ import annotations

from fnmatch import fnmatchcase

from logstore.wire.failures import Failed
from logstore.wire.reply import OK, Reply
from logstore.wire.session import Session
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command, Parse
from logstore.wire.words import Words

SYNC_TOLD = {"always": "always", "everysec": "everysec", "os": "no"}


def _settings(session: Session) -> dict[str, str]:
    service, store = session.service, session.database.store
    limits, options = store._engine().limits, store._engine().options
    return {
        "stream-node-max-bytes": str(limits.node_max_bytes),
        "stream-node-max-entries": str(limits.node_max_entries),
        "appendonly": "yes", "appendfsync": SYNC_TOLD[options.sync],
        "maxclients": str(service.clients_max), "save": "", "maxmemory": "0",
        "databases": str(1 + max(service.databases)),
        "maxmemory-policy": "noeviction", "timeout": "0", "dir": str(store.path),
        "proto-max-bulk-len": str(512 << 20), "port": str(service.port),
        "requirepass": "", "notify-keyspace-events": "",
    }  # fmt: skip


def config_get(session: Session, words: Words) -> Step:
    """As CONFIG GET."""
    patterns = [word.decode(errors="replace").lower() for word in words.rest()]

    def tell() -> Reply:
        return {
            name.encode(): value.encode("utf-8", "surrogateescape")
            for name, value in _settings(session).items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }

    return Tell(tell)


def config_set(session: Session, words: Words) -> Step:
    """As CONFIG SET: settings are fixed when the store is made or the server started."""
    given = words.rest()
    if len(given) % 2:
        raise Failed("ERR wrong number of arguments for 'config|set' command")
    known = _settings(session)
    for name, value in zip(given[::2], given[1::2], strict=True):
        text = name.decode(errors="replace").lower()
        if text not in known:
            raise Failed(
                "ERR Unknown option or number of arguments for CONFIG SET - "
                f"'{name.decode(errors='replace')}'"
            )
        if known[text] != value.decode(errors="replace"):
            raise Failed(
                f"ERR CONFIG SET failed (possibly related to argument '{text}') - can't set "
                "immutable config"
            )
    return Tell(lambda: OK)


def config_reset(session: Session, _words: Words) -> Step:
    """As CONFIG RESETSTAT."""

    def begin() -> Reply:
        session.service.total_connections = session.service.total_commands = 0
        return OK

    return Tell(begin)


def _one(name: str, arity: int, parse: Parse | None, summary: str, *parts: Command) -> Command:
    return Command(
        name, arity, parse, ("noscript", "loading", "stale"), since="1.0.0", complexity="O(1)",
        group="server", summary=summary, categories=("slow", "admin", "dangerous"),
        subcommands={each.name: each for each in parts},
    )  # fmt: skip


COMMANDS = [
    _one("config", -2, None, "Settings.",
         _one("config|get", -3, config_get, "Tells settings."),
         _one("config|set", -4, config_set, "Settings are fixed: refuses what would change one."),
         _one("config|resetstat", 2, config_reset, "Counts from zero.")),
]  # fmt: skip
