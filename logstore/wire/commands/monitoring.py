"""What monitoring tools ask a server that stands alone: INFO, SLOWLOG, MONITOR, ROLE, CLUSTER."""

from __future__ import annotations

import os
import platform
import resource

import logstore
from logstore.api.info import sizes, stream_count
from logstore.api.opening import opened_of
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.features.ttl_rows import ExpiryRows
from logstore.wire.resp.reply import OK, Failed, Reply, Verbatim
from logstore.wire.resp.words import Words, integer, shown
from logstore.wire.service import Client, Database, Parse, Service
from logstore.wire.stats import human
from logstore.wire.steps import Admin, CommandStep, ReplyStep, done
from logstore.wire.table import Command, constant, help_of, is_valkey

_NO_CLUSTER = "ERR This instance has cluster support disabled"
_SLOWLOG_COUNT = "ERR count should be greater than or equal to -1"
_CLUSTER_READS = (
    "info",
    "nodes",
    "slots",
    "shards",
    "links",
    "myid",
    "myshardid",
    "keyslot",
    "countkeysinslot",
    "getkeysinslot",
)
_CLUSTER = (
    *_CLUSTER_READS,
    "replicas",
    "slaves",
    "meet",
    "forget",
    "failover",
    "reset",
    "replicate",
    "addslots",
    "delslots",
    "setslot",
    "flushslots",
    "saveconfig",
    "bumpepoch",
    "help",
)


# -- INFO -----------------------------------------------------------------------------------------
_NOT_BY_DEFAULT = frozenset({"commandstats"})
_GROUPS = frozenset({"all", "everything", "default"})


def _sections(client: Client) -> dict[str, dict[str, object]]:
    service, store = client.service, client.database.store
    engine, counts = opened_of(store).engine(), service.counts
    sized = sizes(engine)
    metrics = store.metrics()
    version = service.version_told.decode()
    name = "valkey" if is_valkey(service.profile) else "redis"
    server: dict[str, object] = {"redis_version": "7.2.4" if name == "valkey" else version}
    if name == "valkey":
        server |= {"server_name": "valkey", "valkey_version": version}
    server |= {
        "redis_mode": "standalone",
        "os": f"{platform.system()} {platform.release()}",
        "arch_bits": 64,
        "process_id": os.getpid(),
        "run_id": engine.uuid.hex().ljust(40, "0"),
        "tcp_port": service.port,
        "uptime_in_seconds": service.uptime_s,
        "uptime_in_days": service.uptime_s // 86400,
        "logstore_version": logstore.__version__,
        "logstore_path": str(engine.path),
    }
    return {
        "Server": server,
        "Clients": {
            "connected_clients": len(service.clients),
            "blocked_clients": sum(
                client.unblock is not None for client in list(service.clients.values())
            ),
            "maxclients": service.clients_max,
        },
        "Memory": _memory(),
        "Persistence": {
            "loading": 0,
            "aof_enabled": 1,
            "rdb_changes_since_last_save": max(0, service.commits - service.saved_commits),
            "rdb_bgsave_in_progress": 0,
            "rdb_last_save_time": int(service.last_save),
            "rdb_last_bgsave_status": "ok",
            "aof_last_write_status": "ok",
            "log_bytes": sized.log_bytes,
            "disk_bytes": sized.disk_bytes,
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
            **{f"logstore_{metric}": value for metric, value in metrics.items()},
        },
        "Replication": {"role": "master", "connected_slaves": 0},
        "Commandstats": {
            f"cmdstat_{command}": line for command, line in counts.of_commands().items()
        },
        "Errorstats": {
            f"errorstat_{code}": f"count={counts.errors[code]}" for code in sorted(counts.errors)
        },
        "Cluster": {"cluster_enabled": 0},
        "Keyspace": {
            f"db{database.number}": f"keys={streams},{_expiring(service, database)}"
            for database in service.databases.values()
            if (streams := stream_count(opened_of(database.store).engine()))
        },
    }


def _expiring(service: Service, database: Database) -> str:
    """How many streams are to expire, and in how many milliseconds on average."""

    none_in_keys = "keys_with_volatile_items" if is_valkey(service.profile) else "subexpiry"

    def look(view: Snapshot) -> str:
        now_ms, count, sum_ms = view.now_ms, 0, 0
        for when_ms, _ in ExpiryRows(view.index).rows():
            if when_ms > now_ms:
                count, sum_ms = count + 1, sum_ms + when_ms - now_ms
        return f"expires={count},avg_ttl={sum_ms // count if count else 0},{none_in_keys}=0"

    return snapshot.read(opened_of(database.store).engine(), look)


def _memory() -> dict[str, object]:
    """The most that the process had resident, which is all that is known without a file."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    in_all = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sizes = {
        "used_memory": peak,
        "used_memory_rss": peak,
        "used_memory_peak": peak,
        "total_system_memory": in_all,
        "maxmemory": 0,
    }
    fields: dict[str, object] = {"used_memory_dataset": 0, "maxmemory_policy": "noeviction"}
    for name, size in sizes.items():
        fields |= {name: size, f"{name}_human": human(size)}
    return fields


def info(client: Client, words: Words) -> CommandStep:
    """As INFO."""
    wanted = {shown(word).lower() for word in words.rest()} or {"default"}

    def tell() -> Reply:
        parts: list[str] = []
        for title, fields in _sections(client).items():
            name = title.lower()
            groups = _GROUPS - {"default"} if name in _NOT_BY_DEFAULT else _GROUPS
            if name in wanted or wanted & groups:
                lines = [f"{field}:{value}" for field, value in fields.items()]
                parts.append("\r\n".join([f"# {title}", *lines]) + "\r\n")
        return Verbatim("\r\n".join(parts).encode("utf-8", "surrogateescape"))

    return Admin(tell, commits=False)


# -- what else is asked ---------------------------------------------------------------------------
def role(_client: Client, _words: Words) -> CommandStep:
    """As ROLE: a master without replicas."""
    answer: Reply = [b"master", 0, []]
    return ReplyStep(lambda: answer)


def cluster(_client: Client, _words: Words) -> CommandStep:
    """As CLUSTER of a server that is not part of one."""
    raise Failed(_NO_CLUSTER)


def slow_get(client: Client, words: Words) -> CommandStep:
    """As SLOWLOG GET."""
    most = integer(words.next(), _SLOWLOG_COUNT) if len(words) else 10
    if most < -1:
        raise Failed(_SLOWLOG_COUNT)
    words.end()
    return ReplyStep(lambda: client.service.slowlog.newest(most))


def slow_length(client: Client, _words: Words) -> CommandStep:
    """As SLOWLOG LEN."""
    return ReplyStep(lambda: len(client.service.slowlog))


def slow_reset(client: Client, _words: Words) -> CommandStep:
    """As SLOWLOG RESET."""
    return done(client.service.slowlog.clear)


def monitor(client: Client, _words: Words) -> CommandStep:
    """As MONITOR: from now on the client gets the requests of others."""
    if client.send is None:
        raise Failed("ERR MONITOR is of a served store: a client in the same process cannot")
    if client.multi is not None:
        raise Failed("ERR MONITOR isn't allowed for DENY BLOCKING client")

    def begin() -> Reply:
        client.service.monitors[client.id] = client
        return OK

    return ReplyStep(begin)


def _one(
    name: str,
    arity: int,
    parse: Parse | None,
    summary: str,
    since: str,
    *parts: Command,
    flags: tuple[str, ...] = (),
    categories: tuple[str, ...] = ("slow",),
) -> Command:
    subcommands = {part.name: part for part in parts}
    return constant(
        name, arity, parse, since, summary, group="server", flags=flags, categories=categories,
        subcommands=subcommands,
    )  # fmt: skip


_ADMIN = ("admin", "slow", "dangerous")
_CLUSTER_TOLD = (*_CLUSTER_READS, "help")
_SLOWLOG = tuple(
    _one(
        f"slowlog|{name}",
        arity,
        parse,
        summary,
        "2.2.12",
        flags=("admin", "loading", "stale"),
        categories=_ADMIN,
    )
    for name, arity, parse, summary in (
        ("get", -2, slow_get, "Tells the newest commands that took long."),
        ("len", 2, slow_length, "Tells how many of them are kept."),
        ("reset", 2, slow_reset, "Forgets them."),
    )
)
COMMANDS = [
    _one("info", -1, info, "Tells of the server and the store.", "1.0.0",
         flags=("loading", "stale"), categories=("slow", "dangerous")),
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
