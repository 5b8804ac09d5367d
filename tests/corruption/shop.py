"""A store with a bit of everything, and what was put into it. Seeded; reads as plain values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.dump import export
from logstore.options import StreamSettings
from logstore.rdb.value import StreamInfoValue

Pairs = list[tuple[bytes, bytes]]
Entries = dict[str, Pairs]  # by ID
FAR_MS = 4_000_000_000_000


@dataclass
class Shop:
    """Where the store is, and every entry that was ever added."""

    path: Path
    ever: dict[bytes, Entries] = field(default_factory=dict)
    live: dict[bytes, Entries] = field(default_factory=dict)
    infos: dict[bytes, StreamInfoValue] = field(default_factory=dict)
    settings: dict[bytes, StreamSettings] = field(default_factory=dict)
    scheduled: dict[bytes, list[Pairs]] = field(default_factory=dict)


def entries(store: logstore.Store[Any], name: bytes) -> Entries:
    """What a stream holds."""
    return {str(entry.id): entry.pairs for entry in store.stream(name)}


def take_down(store: logstore.Store[Any], shop: Shop) -> None:
    """Take down all that can be read."""
    for name in store.streams():
        stream = store.stream(name)
        shop.live[name] = entries(store, name)
        shop.infos[name] = export.read(store._engine(), name).info
        shop.settings[name] = stream.settings
        shop.scheduled[name] = [each.pairs for each in stream.scheduled()]


def make(path: Path, seed: int, *, compacted: bool = True, size: int = 1) -> Shop:
    """Several segments, small nodes, every kind of frame; closed cleanly."""
    rng = random.Random(seed)
    shop = Shop(path)
    with logstore.open(path, segment_bytes=1 << 16, node_max_entries=20, node_max_bytes=2048,
                       sync="always", background=False) as store:  # fmt: skip
        for turn in range(6 * size):
            _turn(store, shop, rng, turn)
            if turn == 2 and compacted:
                store.checkpoint()
                store.compact(threshold=0.05)
            if turn == 5:
                store.checkpoint()
        _groups(store)
        store.rename("moved", "renamed")
        shop.ever[b"renamed"] = shop.ever.pop(b"moved")
        take_down(store, shop)
    return shop


def _add(store: logstore.Store[Any], shop: Shop, name: str, rng: random.Random, count: int) -> None:
    kept = shop.ever.setdefault(name.encode(), {})
    for _ in range(count):
        pairs = [(b"n", str(len(kept)).encode()), (b"text", rng.randbytes(rng.randrange(30)))]
        id = store.stream(name).add(pairs, id=f"{len(kept) + 1}-{rng.randrange(3)}")
        kept[str(id)] = pairs


def _bulk(store: logstore.Store[Any], shop: Shop, name: str, rng: random.Random) -> None:
    kept = shop.ever.setdefault(name.encode(), {})
    rows = [[(b"row", str(len(kept) + n).encode()), (b"x", rng.randbytes(120))] for n in range(200)]
    ids = [logstore.StreamID(len(kept) + n + 1, 0) for n in range(200)]
    store.stream(name).add_many(zip(ids, rows, strict=True))
    kept.update(zip(map(str, ids), rows, strict=True))


def _turn(store: logstore.Store[Any], shop: Shop, rng: random.Random, turn: int) -> None:
    _add(store, shop, "single", rng, 45)
    _add(store, shop, "quiet" if turn == 0 else "busy", rng, 7)
    _add(store, shop, "moved", rng, 3)
    _bulk(store, shop, "bulk", rng)
    ids = list(shop.ever[b"single"])
    store.stream("single").delete(*rng.sample(ids, 6))
    store.stream("bulk").delete(*rng.sample(list(shop.ever[b"bulk"]), 9))
    store.stream("bulk").trim(max_entries=500, approximate=False)
    with store.transaction() as both:
        for name in (b"left", b"right"):
            pairs = [(b"turn", str(turn).encode())]
            both.stream(name).add(pairs, id=f"{turn + 1}-0")
            shop.ever.setdefault(name, {})[f"{turn + 1}-0"] = pairs
    once = [(b"job", str(turn).encode())]
    id = store.stream("once").add(once, producer="p", idempotent_id=f"job-{turn}")
    shop.ever.setdefault(b"once", {})[str(id)] = once


def _groups(store: logstore.Store[Any]) -> None:
    stream = store.stream("single")
    group = stream.group("workers")
    group.create(start="0")
    group.read("ann", count=12)
    group.read("bob", count=7)
    pending = [each.id for each in group.backlog("ann")]
    group.ack(*pending[:4])
    stream.configure(max_entries=100_000)
    store.stream("busy").schedule({b"later": b"1"}, at=FAR_MS)
    store.stream("quiet").expire(at=FAR_MS)
    store.create("empty")
