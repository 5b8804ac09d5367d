"""Of the server as a whole: INFO, DBSIZE, FLUSHALL, SAVE, SHUTDOWN, ..."""

from __future__ import annotations

import os
import platform
import resource
import time
from typing import TYPE_CHECKING

import logstore
from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.features.expiry import ExpiryRows
from logstore.log import frame as frames
from logstore.wire.command_words import Words, shown
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import NO_REPLY, OK, Reply, Simple, Verbatim
from logstore.wire.server_stats import human
from logstore.wire.session import Session
from logstore.wire.steps import Admin, Change, Look, Reader, Step, Tell, ok
from logstore.wire.table import Command, Parse

if TYPE_CHECKING:
    from logstore.wire.service import Database, Service

FLUSH_REFUSED = (
    "ERR this server does not delete everything at once: start it with --allow-flush if it should"
)


# -- INFO -----------------------------------------------------------------------------------------
def _sections(session: Session) -> dict[str, dict[str, object]]:
    service, store = session.service, session.database.store
    told, counts = store.info(), service.counts
    metrics = store.metrics()
    version = service.version_told.decode()
    name = "valkey" if service.profile == "valkey-9" else "redis"
    server: dict[str, object] = {"redis_version": "7.2.4" if name == "valkey" else version}
    if name == "valkey":
        server |= {"server_name": "valkey", "valkey_version": version}
    server |= {
        "redis_mode": "standalone", "os": f"{platform.system()} {platform.release()}",
        "arch_bits": 64, "process_id": os.getpid(), "run_id": told.uuid.ljust(40, "0"),
        "tcp_port": service.port, "uptime_in_seconds": service.uptime_s,
        "uptime_in_days": service.uptime_s // 86400, "logstore_version": logstore.__version__,
        "logstore_path": told.path,
    }  # fmt: skip
    return {
        "Server": server,
        "Clients": {
            "connected_clients": len(service.sessions),
            "blocked_clients": sum(each.unblock is not None for each in service.sessions.values()),
            "maxclients": service.clients_max,
        },
        "Memory": _memory(),
        "Persistence": {
            "loading": 0, "aof_enabled": 1,
            "rdb_changes_since_last_save": max(0, service.commits - service.saved_commits),
            "rdb_bgsave_in_progress": 0, "rdb_last_save_time": int(service.last_save),
            "rdb_last_bgsave_status": "ok", "aof_last_write_status": "ok",
            "log_bytes": told.log_bytes,
            "disk_bytes": told.disk_bytes,
        },
        "Stats": {
            "total_connections_received": counts.connections,
            "total_commands_processed": counts.commands,
            "instantaneous_ops_per_sec": counts.commands_a_second(),
            "rejected_connections": counts.rejected,
            "total_error_replies": sum(counts.errors.values()),
            "acl_access_denied_auth": service.denials.counts["auth"],
            "acl_access_denied_cmd": service.denials.counts["command"],
            "acl_access_denied_key": service.denials.counts["key"],
            "acl_access_denied_channel": 0,
            **{f"logstore_{each}": value for each, value in metrics.items()},
        },
        "Replication": {"role": "master", "connected_slaves": 0},
        "Errorstats": {
            f"errorstat_{code}": f"count={counts.errors[code]}" for code in sorted(counts.errors)
        },
        "Cluster": {"cluster_enabled": 0},
        "Keyspace": {
            f"db{each.number}": f"keys={streams},{_expiring(service, each)}"
            for each in service.databases.values() if (streams := each.store.info().streams)
        },
    }  # fmt: skip


def _expiring(service: Service, database: Database) -> str:
    """How many streams are to expire, and in how many milliseconds on average."""

    none_in_keys = "keys_with_volatile_items" if service.profile == "valkey-9" else "subexpiry"

    def look(view: Snapshot) -> str:
        now_ms, count, sum_ms = view.now_ms, 0, 0
        for when_ms, _ in ExpiryRows(view.index).rows():
            if when_ms > now_ms:
                count, sum_ms = count + 1, sum_ms + when_ms - now_ms
        return f"expires={count},avg_ttl={sum_ms // count if count else 0},{none_in_keys}=0"

    return snapshot.read(opened_of(database.store).engine(), look)


def _memory() -> dict[str, object]:
    """The most that the process had resident, which is all that can be told without a file."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    in_all = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sizes = {
        "used_memory": peak, "used_memory_rss": peak, "used_memory_peak": peak,
        "total_system_memory": in_all, "maxmemory": 0,
    }  # fmt: skip
    found: dict[str, object] = {"used_memory_dataset": 0, "maxmemory_policy": "noeviction"}
    for name, size in sizes.items():
        found |= {name: size, f"{name}_human": human(size)}
    return found


def info(session: Session, words: Words) -> Step:
    """As INFO."""
    wanted = {shown(word).lower() for word in words.rest()}

    def tell() -> Reply:
        parts: list[str] = []
        for title, fields in _sections(session).items():
            if not wanted or wanted & {title.lower(), "all", "everything", "default"}:
                lines = [f"{name}:{value}" for name, value in fields.items()]
                parts.append("\r\n".join([f"# {title}", *lines]) + "\r\n")
        return Verbatim("\r\n".join(parts).encode("utf-8", "surrogateescape"))

    return Admin(tell, commits=False)


# -- the whole store -------------------------------------------------------------------------------
def db_size(_session: Session, _words: Words) -> Step:
    """As DBSIZE."""

    def find(reader: Reader) -> Reply:
        return reader.once(lambda view: sum(1 for _ in view.listed()))

    return Look(find)


def flush(session: Session, words: Words) -> Step:
    """As FLUSHDB, if the server allows it."""
    if not session.service.allow_flush:
        raise Failed(FLUSH_REFUSED)
    if len(words) and words.option() not in (b"ASYNC", b"SYNC"):
        raise Failed(SYNTAX)
    words.end()

    return Change(_flush, ok, frees=True)


def _flush(state: WriteTxn) -> None:
    state.flush()  # so that the index has what a transaction did before
    for record in list(state.index.records()):
        state.emit(frames.Drop(record.number))


def flush_all(session: Session, words: Words) -> Step:
    """As FLUSHALL, of every database."""
    step, databases = flush(session, words), session.service.databases.values()
    if len(databases) == 1:
        return step

    def work() -> Reply:
        replies = [each.runner.run([step])[0] for each in databases]
        return next((each for each in replies if each is not OK), OK)

    return Admin(work)


def save(session: Session, words: Words) -> Step:
    """As SAVE: a checkpoint, durable when it returns."""
    words.rest()

    def work() -> Reply:
        before = session.service.commits
        for each in session.service.databases.values():
            each.store.sync()
            each.store.checkpoint()
        session.service.last_save = time.time()
        session.service.saved_commits = before
        return OK

    return Admin(work)


def background_save(session: Session, words: Words) -> Step:
    """As BGSAVE: the same, and it answers when it is done."""
    step = save(session, words)
    assert isinstance(step, Admin)
    work = step.work

    def told() -> Reply:
        work()
        return Simple(b"Background saving started")

    return Admin(told)


def last_save(session: Session, _words: Words) -> Step:
    """As LASTSAVE."""
    return Tell(lambda: int(session.service.last_save))


def wait(_session: Session, words: Words) -> Step:
    """As WAIT: there are no replicas."""
    words.integer()
    if words.integer("ERR timeout is not an integer or out of range") < 0:
        raise Failed("ERR timeout is negative")
    return Tell(lambda: 0)


def shutdown(session: Session, words: Words) -> Step:
    """As SHUTDOWN."""
    while len(words):
        if words.option() not in (b"NOSAVE", b"SAVE", b"NOW", b"FORCE"):
            raise Failed(SYNTAX)
    end = session.service.shutdown
    if end is None:
        raise Failed("ERR Errors trying to SHUTDOWN. Check logs.")

    def begin() -> Reply:
        end()
        session.closing = True
        return NO_REPLY

    return Tell(begin)


def server_time(_session: Session, _words: Words) -> Step:
    """As TIME."""

    def find(reader: Reader) -> Reply:
        now_ms = reader.now_ms
        return [b"%d" % (now_ms // 1000), b"%d" % (now_ms % 1000 * 1000)]

    return Look(find)


def _one(name: str, arity: int, parse: Parse, summary: str, flags: str, categories: str) -> Command:
    return Command(
        name, arity, parse, tuple(flags.split()), since="1.0.0", complexity="O(1)",
        group="server", summary=summary, categories=tuple(categories.split()),
    )  # fmt: skip


_SAVES = "admin noscript no_async_loading"
_ADMIN = "admin slow dangerous"
COMMANDS = [
    _one("info", -1, info, "Tells of the server and the store.", "loading stale", "slow dangerous"),
    _one("dbsize", 1, db_size, "Tells how many streams there are.", "readonly fast",
         "keyspace read fast"),
    _one("flushall", -1, flush_all, "Removes every stream.", "write",
         "keyspace write slow dangerous"),
    _one("flushdb", -1, flush, "Removes every stream of the database.", "write",
         "keyspace write slow dangerous"),
    _one("save", 1, save, "Takes a checkpoint.", f"{_SAVES} no_multi", _ADMIN),
    _one("bgsave", -1, background_save, "Takes a checkpoint.", f"{_SAVES} no-multi", _ADMIN),
    _one("lastsave", 1, last_save, "Tells when the last checkpoint was asked for.",
         "loading stale fast", "admin fast dangerous"),
    _one("wait", 3, wait, "Tells that there are no replicas.", "blocking",
         "slow blocking connection"),
    _one("shutdown", -1, shutdown, "Ends the server.",
         "admin noscript loading stale no_multi allow_busy", _ADMIN),
    _one("time", 1, server_time, "Tells the time.", "loading stale fast", "fast"),
]  # fmt: skip
