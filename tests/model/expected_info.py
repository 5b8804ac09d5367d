"""What every ``info`` must tell, field by field, reckoned from the model and from the log.

One function for each type of ``logstore.info`` and ``logstore.fullinfo``; it gives all fields by
name but those in ``APART``, each of which has its reason there. ``Compared`` holds them against
what the store tells, refuses a field that is in neither, and counts numbers.
"""

from __future__ import annotations

import os
import struct
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logstore.codec import codec_name
from logstore.options import GroupSettings, StreamSettings
from logstore.schema.schema_text import parse
from tests.model.groups import ID, Consumer, Group, Held, Pairs
from tests.model.store import StoreModel
from tests.model.streams import Stream
from tests.model.walk import COMPACTED, MAIN, Log

# Fields that are no function of what was done to the store, and what is known of them instead.
APART: dict[str, dict[str, str]] = {
    "StoreInfo": {
        "durable_segment": "a lower bound by its documentation; held against the end of the log",
        "durable_offset": "the same",
        "reclaimable_bytes": "an estimate; held against compactions in test_told_space",
        "pinned_bytes": "sizes of snapshot files among them; held in tests/scan/test_pins.py",
        "oldest_pin_ms": "the model does not note when a scan began; held in the same tests",
    },
}
# The same of counters.
APART_COUNTERS = {
    "sync_s": "a length of time; at least the longest",
    "sync_s_max": "a length of time",
    "pinned_bytes": "as of StoreInfo",
    "oldest_pin_ms": "as of StoreInfo",
    "syncs": "when the disk is asked is a matter of order, not of content; at least one a roll",
}
# Types that tell of what the model never makes, and where they are held against it.
ELSEWHERE = {
    "StreamSummary": "of what the doctor examines: tests/tools, tests/web",
    "PinInfo": "of scans and exports: tests/scan/test_pins.py",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Compared:
    """Holds what is told against what must be; counts the numbers."""

    def __init__(self) -> None:
        self.numbers = 0
        self.seen: dict[str, set[str]] = {}

    def same(self, found: Any, wanted: Any, where: str) -> None:
        """Alike in every field; ``wanted`` of a dataclass is a mapping of its fields."""
        if is_dataclass(found) and isinstance(wanted, dict):
            self._fields(found, wanted, where)
        elif isinstance(wanted, dict):
            assert isinstance(found, dict), where
            assert set(found) == set(wanted), f"{where}: {set(found) ^ set(wanted)}"
            for name, value in wanted.items():
                self.same(found[name], value, f"{where}.{name}")
        elif isinstance(wanted, (list, tuple)):
            assert len(found) == len(wanted), f"{where}: {found} is not {wanted}"
            for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
                self.same(one, other, f"{where}[{place}]")
        elif hasattr(found, "pairs"):
            raise AssertionError(f"{where}: {found} is not {wanted}")
        else:
            self.numbers += isinstance(wanted, (int, float, timedelta, datetime))
            assert found == wanted, f"{where}: {found!r} is not {wanted!r}"

    def _fields(self, found: Any, wanted: dict[str, Any], where: str) -> None:
        kind = type(found).__name__
        names = {each.name for each in fields(found)}
        assert names == set(wanted) | set(APART.get(kind, {})), f"{where}: not all of {kind}"
        self.seen.setdefault(kind, set()).update(wanted)
        for name, value in wanted.items():
            given = getattr(found, name)
            if hasattr(given, "pairs"):
                given = entry(given)
            elif isinstance(given, tuple) and given and hasattr(given[0], "pairs"):
                given = [entry(each) for each in given]
            self.same(given, value, f"{where}.{name}")


def entry(found: Any) -> tuple[ID, Pairs]:
    """An entry, as the model has it."""
    return tuple(found.id), tuple(found.pairs)


def moment(ms: int | None) -> datetime | None:
    """A time as info tells it."""
    return EPOCH + timedelta(milliseconds=ms) if ms else None


def span(ms: int) -> timedelta:
    """A length of time as info tells it."""
    return timedelta(milliseconds=ms)


# -- of a store ---------------------------------------------------------------------------------
def index_bytes(path: Path) -> int:
    """Bytes of the index's pages, as its file itself says: the newer of LMDB's two meta pages."""
    with (path / "data.mdb").open("rb") as file:
        head = file.read(1 << 17)
    size = struct.unpack_from("<I", head, 16 + 24)[0]
    metas = [struct.unpack_from("<II16x96xQQ", head, at + 16) for at in (0, size)]
    assert {meta[0] for meta in metas} == {0xBEEFC0DE}
    return (max(metas, key=lambda meta: meta[3])[2] + 1) * size


def disk_bytes(path: Path) -> int:
    """What files occupy, as du counts."""
    found = 0
    for folder, _, names in os.walk(path):
        found += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)
    return found


def store(
    model: StoreModel, log: Log, path: Path, now_ms: int, compacted: tuple[int, int], pins: int = 0
) -> dict[str, Any]:
    """Of ``StoreInfo``."""
    there = [each for each in model.streams.values() if not 0 < each.expires_ms <= now_ms]
    live = log.live()
    sizes = {number: log.file_bytes(number) for number in log.segments}
    names = [name for name, each in model.streams.items() if not 0 < each.expires_ms <= now_ms]
    dead = log.deleted_bytes(names)
    born = [log.segments[number].created_ms for number, size in dead.items() if size]
    alive, tombstoned = log.parts_of_nodes(names)
    generation = max(int(each.name) for each in (path / "index").iterdir() if each.name.isdigit())
    return {
        "path": str(path), "uuid": log.uuid.hex(), "format_version": log.version,
        "streams": len(there), "scheduled": sum(len(each.scheduled) for each in there),
        "nodes": sum(count for _, count in live.values()), "segments": len(log.segments),
        "log_bytes": sum(sizes.values()),
        "live_bytes": alive, "tombstoned_bytes": tombstoned,
        "dead_bytes": sum(sizes.values()) - alive - tombstoned,
        "index_bytes": index_bytes(path / "index" / str(generation)),
        "index_generation": generation, "disk_bytes": disk_bytes(path),
        "deleted_bytes": sum(dead.values()), "oldest_deleted_segment_ms": min(born, default=0),
        "applied_segment": log.end[0], "applied_offset": log.end[1], "codec": codec_name(),
        "core": codec_name(),
        "compacted_ms": compacted[0], "compacted_bytes": compacted[1], "pins": pins,
        "shipped_ms": 0, "shipped_to": "", "unshipped_bytes": 0,  # nothing is shipped here
    }  # fmt: skip


def segments(log: Log) -> dict[int, tuple[int, ...]]:
    """Of each segment: role, live bytes, live nodes, bytes of a sealed main one, birth."""
    live = log.live()
    return {
        number: (each.role, *live[number], each.end * (each.role == MAIN), each.created_ms)
        for number, each in log.segments.items()
    }


def counters(model: StoreModel, done: dict[str, int]) -> dict[str, int]:
    """Of ``metrics()``: what the model counted, and what the test counted in the log."""
    from logstore.engine.shm.metrics import COUNTERS

    names = [each.replace("_ns", "_s") for each in COUNTERS]
    told = {name: model.counts[name] + done.get(name, 0) for name in names}
    return {name: value for name, value in told.items() if name not in APART_COUNTERS}


# -- of a stream --------------------------------------------------------------------------------
def radix_nodes(keys: list[bytes], *, root: bool = True) -> int:
    """Nodes of a radix tree of these sorted keys: leaves, branches, and stretches between."""
    if not keys:
        return 1
    if keys == [b""]:
        return 1
    common = next(
        (at for at, parts in enumerate(zip(*keys, strict=False)) if len({*parts}) > 1),
        min(map(len, keys)),
    )
    if common:
        return 1 + radix_nodes([key[common:] for key in keys], root=False)
    firsts = sorted({key[:1] for key in keys})
    return 1 + sum(
        radix_nodes([key[1:] for key in keys if key[:1] == first], root=False) for first in firsts
    )


def stream(model: StoreModel, log: Log, name: bytes) -> dict[str, Any]:
    """Of ``StreamInfo``."""
    of, lies = model.streams[name], log.named(name)
    ids = list(of.entries)
    masters = [struct.pack(">QQ", *master) for master in lies.masters()]
    assert (lies.length, lies.added, lies.last) == (len(ids), of.added, of.last), "the log's record"
    assert (lies.first, lies.max_deleted) == (of.first, of.max_deleted), "the log's record"
    live = sum(node.live for node in lies.nodes.values()) + (lies.open.live if lies.open else 0)
    assert live == len(ids), "the log's nodes"
    return {
        "name": name, "length": len(ids), "radix_tree_keys": len(masters),
        "radix_tree_nodes": radix_nodes(masters), "last_generated_id": of.last,
        "max_deleted_entry_id": of.max_deleted, "entries_added": of.added,
        "recorded_first_entry_id": of.first, "groups": len(of.groups),
        "first_entry": (ids[0], of.entries[ids[0]]) if ids else None,
        "last_entry": (ids[-1], of.entries[ids[-1]]) if ids else None,
        "node_bytes": sum(node.size_bytes for node in lies.nodes.values()),
        "open_node_bytes": lies.open.size_bytes if lies.open else 0,
        "settings": StreamSettings(**of.settings), "scheduled": len(of.scheduled),
        "next_due": moment(min((each[0] for each in of.scheduled), default=None)),
        "pids_tracked": len({row[0] for row in of.remembered}),
        "iids_tracked": len(of.remembered), "iids_added": of.iids_added,
        "iids_duplicates": of.iids_duplicates, "expires_at": moment(of.expires_ms),
        "schema": None if of.schema is None else parse(of.schema),
    }  # fmt: skip


def group(name: bytes, of: Group, source: Stream) -> dict[str, Any]:
    """Of ``GroupInfo``."""
    return {
        "name": name, **of.told(source),
        "settings": GroupSettings(of.max_deliveries, of.dead_letter, of.min_idle_ms),
    }  # fmt: skip


def consumer(name: bytes, of: Consumer, within: Group, now_ms: int) -> dict[str, Any]:
    """Of ``ConsumerInfo``."""
    return {
        "name": name, "pending": len(within.of(name)), "idle": span(max(0, now_ms - of.seen)),
        "inactive": None if of.active < 0 else span(max(0, now_ms - of.active)),
    }  # fmt: skip


def pending(of: Group) -> dict[str, Any]:
    """Of ``PendingInfo``."""
    ids = sorted(of.pending)
    return {
        "count": len(ids), "first": ids[0] if ids else None, "last": ids[-1] if ids else None,
        "consumers": {name: len(of.of(name)) for name in of.consumers if of.of(name)},
    }  # fmt: skip


def held(id: ID, of: Held, now_ms: int) -> dict[str, Any]:
    """Of ``PendingEntry``."""
    nobodys = of.owner is None
    return {
        "id": id, "consumer": of.owner, "idle": None if nobodys else span(of.idle(now_ms)),
        "delivery_count": of.count,
    }  # fmt: skip


# -- in full ------------------------------------------------------------------------------------
def full(model: StoreModel, log: Log, name: bytes, count: int, now_ms: int) -> dict[str, Any]:
    """Of ``FullStreamInfo``, at most ``count`` of each list (0: all)."""
    of = model.streams[name]
    return {
        **stream(model, log, name), "entries": list(of.entries.items())[: count or None],
        "group_infos": [
            _full_group(each, of.groups[each], of, count, now_ms) for each in sorted(of.groups)
        ],
    }  # fmt: skip


def _full_group(name: bytes, of: Group, source: Stream, count: int, now_ms: int) -> dict[str, Any]:
    return {
        **group(name, of, source), "nacked": len(of.of(None)),
        "pending_entries": _full_held(of, sorted(of.pending), count, now_ms),
        "consumer_infos": [
            {
                **consumer(each, who, of, now_ms), "seen_ms": who.seen,
                "active_ms": None if who.active < 0 else who.active,
                "pending_entries": _full_held(of, of.of(each), count, now_ms),
            }
            for each, who in sorted(of.consumers.items())
        ],
    }  # fmt: skip


def _full_held(of: Group, ids: list[ID], count: int, now_ms: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for id in ids[: count or None]:
        one = of.pending[id]
        at = None if one.owner is None else one.time
        found.append({**held(id, one, now_ms), "delivered_ms": at})
    return found


__all__ = [
    "APART", "APART_COUNTERS", "COMPACTED", "Compared", "consumer", "counters", "full", "group",
    "held", "pending", "segments", "store", "stream",
]  # fmt: skip
