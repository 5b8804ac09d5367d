"""The server as a whole: CONFIG, DBSIZE, FLUSHALL, SAVE, SHUTDOWN, WAIT, TIME.

The limits of nodes and of the logs can be set; all other settings are fixed when the server starts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import setting_changes
from logstore.log import frame as frames
from logstore.options import ENTRY_MAX_BYTES
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.globs import Glob
from logstore.wire.resp.reply import NO_REPLY, OK, Reply, Simple
from logstore.wire.resp.words import I64_MAX, Words, shown
from logstore.wire.service import Client, Parse, Service
from logstore.wire.steps import Admin, Change, Look, Reader, Step, Tell, ok
from logstore.wire.table import Command, help_of

FLUSH_REFUSED = (
    "ERR this server does not delete everything at once: start it with --allow-flush if it should"
)
NODE_ENTRIES_MAX = 1_000_000
_LIMITS = {
    "stream-node-max-bytes": "node_max_bytes",
    "stream-node-max-entries": "node_max_entries",
}
# Settings of the server while it runs: the least value, and where each is kept.
_NUMBERS: dict[str, tuple[int, Callable[[Service], object], str]] = {
    "acllog-max-len": (0, lambda service: service.denials, "most"),
    "slowlog-log-slower-than": (-1, lambda service: service.slowlog, "slower_us"),
    "slowlog-max-len": (0, lambda service: service.slowlog, "most"),
}
_UNITS = {
    b"": 1,
    b"b": 1,
    b"k": 1000,
    b"kb": 1024,
    b"m": 1000**2,
    b"mb": 1024**2,
    b"g": 1000**3,
    b"gb": 1024**3,
}
_MEMORY = re.compile(rb"([0-9]{1,18})(b|kb?|mb?|gb?|)")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,17})")
SYNC_TOLD = {"always": "always", "everysec": "everysec", "os": "no"}


def _settings(client: Client) -> dict[str, str]:
    service, store = client.service, client.database.store
    limits, options = opened_of(store).engine().limits, opened_of(store).engine().options
    return {
        "stream-node-max-bytes": str(limits.node_max_bytes),
        "stream-node-max-entries": str(limits.node_max_entries),
        "appendonly": "yes",
        "appendfsync": SYNC_TOLD[options.sync],
        "maxclients": str(service.clients_max),
        "save": "",
        "maxmemory": "0",
        "databases": str(1 + max(service.databases)),
        "maxmemory-policy": "noeviction",
        "timeout": "0",
        "dir": str(store.path),
        "proto-max-bulk-len": str(512 << 20),
        "port": str(service.port),
        **{name: str(getattr(of(service), field)) for name, (_, of, field) in _NUMBERS.items()},
        "requirepass": "",
        "aclfile": str(service.users_file or ""),
        "notify-keyspace-events": "",
    }


def config_get(client: Client, words: Words) -> Step:
    """As CONFIG GET."""
    patterns = words.rest()

    def find(reader: Reader) -> Reply:
        known = {name.encode(): value for name, value in _settings(client).items()}
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


def config_set(client: Client, words: Words) -> Step:
    """As CONFIG SET: of the limits of nodes; all else is fixed when the server is started."""
    given = words.rest()
    if len(given) % 2:
        raise Failed("ERR wrong number of arguments for 'config|set' command")
    known = _settings(client)
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
            setattr(of(client.service), field, number)
        return OK

    if not wanted:
        return Tell(begin)
    shared = opened_of(client.database.store).live()

    def change() -> Reply:
        setting_changes.limit_nodes(shared.engine, shared.committer, wanted)
        return begin()

    return Admin(change)


def _refused(name: str, why: str) -> Failed:
    return Failed(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")


def _limit(name: str, value: bytes) -> int:
    if name == "stream-node-max-bytes":
        parts = _MEMORY.fullmatch(value.lower())
        if parts is None:
            raise _refused(name, "argument must be a memory value")
        # More than that is, there as here, that.
        return min(int(parts[1]) * _UNITS[parts[2]], ENTRY_MAX_BYTES)
    return _whole(name, value, 0, NODE_ENTRIES_MAX)


def _whole(name: str, value: bytes, least: int, most: int) -> int:
    if not _INTEGER.fullmatch(value):
        raise _refused(name, "argument couldn't be parsed into an integer")
    if not least <= int(value) <= most:
        raise _refused(name, f"argument must be between {least} and {most} inclusive")
    return int(value)


def config_reset(client: Client, _words: Words) -> Step:
    """As CONFIG RESETSTAT."""

    def begin() -> Reply:
        client.service.counts.reset()
        return OK

    return Tell(begin)


# -- the whole store -------------------------------------------------------------------------------
def db_size(_client: Client, _words: Words) -> Step:
    """As DBSIZE."""

    def find(reader: Reader) -> Reply:
        return reader.once(lambda view: sum(1 for _ in view.listed()))

    return Look(find)


def flush(client: Client, words: Words) -> Step:
    """As FLUSHDB, if the server allows it."""
    if not client.service.allow_flush:
        raise Failed(FLUSH_REFUSED)
    if len(words) and words.option() not in (b"ASYNC", b"SYNC"):
        raise Failed(SYNTAX)
    words.end()

    return Change(_flush, ok, frees=True)


def _flush(state: WriteTxn) -> None:
    state.flush()  # so that the index has what a transaction did before
    for record in list(state.index.records()):
        state.emit(frames.Drop(record.number))


def flush_all(client: Client, words: Words) -> Step:
    """As FLUSHALL, of every database."""
    step, databases = flush(client, words), client.service.databases.values()
    if len(databases) == 1:
        return step

    def work() -> Reply:
        replies = [database.runner.run([step])[0] for database in databases]
        return next((reply for reply in replies if reply is not OK), OK)

    return Admin(work)


def save(client: Client, words: Words) -> Step:
    """As SAVE: a checkpoint, durable when it returns."""
    words.rest()

    def work() -> Reply:
        before = client.service.commits
        for database in client.service.databases.values():
            database.store.sync()
            database.store.checkpoint()
        client.service.last_save = time.time()
        client.service.saved_commits = before
        return OK

    return Admin(work)


def background_save(client: Client, words: Words) -> Step:
    """As BGSAVE: the same, and it answers when it is done."""
    step = save(client, words)
    assert isinstance(step, Admin)
    work = step.work

    def told() -> Reply:
        work()
        return Simple(b"Background saving started")

    return Admin(told)


def last_save(client: Client, _words: Words) -> Step:
    """As LASTSAVE."""
    return Tell(lambda: int(client.service.last_save))


def wait(_client: Client, words: Words) -> Step:
    """As WAIT: there are no replicas."""
    words.integer()
    if words.integer("ERR timeout is not an integer or out of range") < 0:
        raise Failed("ERR timeout is negative")
    return Tell(lambda: 0)


def shutdown(client: Client, words: Words) -> Step:
    """As SHUTDOWN."""
    while len(words):
        if words.option() not in (b"NOSAVE", b"SAVE", b"NOW", b"FORCE"):
            raise Failed(SYNTAX)
    end = client.service.shutdown
    if end is None:
        raise Failed("ERR Errors trying to SHUTDOWN. Check logs.")

    def begin() -> Reply:
        end()
        client.closing = True
        return NO_REPLY

    return Tell(begin)


def server_time(_client: Client, _words: Words) -> Step:
    """As TIME."""

    def find(reader: Reader) -> Reply:
        now_ms = reader.now_ms
        return [b"%d" % (now_ms // 1000), b"%d" % (now_ms % 1000 * 1000)]

    return Look(find)


def _one(
    name: str,
    arity: int,
    parse: Parse | None,
    summary: str,
    flags: str,
    categories: str,
    *subcommands: Command,
) -> Command:
    return Command(
        name,
        arity,
        parse,
        tuple(flags.split()),
        since="1.0.0",
        complexity="O(1)",
        group="server",
        summary=summary,
        categories=tuple(categories.split()),
        subcommands={part.name: part for part in subcommands},
    )


_ALWAYS = "admin noscript loading stale"
_SAVES = "admin noscript no_async_loading"
_ADMIN = "admin slow dangerous"
_CONFIG = (
    _one("config|get", -3, config_get, "Tells settings.", _ALWAYS, _ADMIN),
    _one(
        "config|set",
        -4,
        config_set,
        "Sets the limits of nodes; refuses to change all else.",
        _ALWAYS,
        _ADMIN,
    ),
    _one("config|resetstat", 2, config_reset, "Counts from zero.", _ALWAYS, _ADMIN),
)
COMMANDS = [
    _one("config", -2, None, "Settings.", "", "slow", *_CONFIG, help_of("config", _CONFIG, {
        "get": "<pattern> [<pattern> ...]", "set": "<directive> <value> [...]",
    })),
    _one("dbsize", 1, db_size, "Tells how many streams there are.", "readonly fast",
         "keyspace read fast"),
    _one("flushall", -1, flush_all, "Removes every stream.", "write",
         "keyspace write slow dangerous"),
    _one("flushdb", -1, flush, "Removes every stream of the database.", "write",
         "keyspace write slow dangerous"),
    _one("save", 1, save, "Takes a checkpoint.", f"{_SAVES} no_multi", _ADMIN),
    _one("bgsave", -1, background_save, "Takes a checkpoint.", _SAVES, _ADMIN),
    _one("lastsave", 1, last_save, "Tells when the last checkpoint was asked for.",
         "loading stale fast", "admin fast dangerous"),
    _one("wait", 3, wait, "Tells that there are no replicas.", "blocking",
         "slow blocking connection"),
    _one("shutdown", -1, shutdown, "Ends the server.",
         "admin noscript loading stale no_multi allow_busy", _ADMIN),
    _one("time", 1, server_time, "Tells the time.", "loading stale fast", "fast"),
]  # fmt: skip
