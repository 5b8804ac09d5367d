"""Stores with something to give back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import logstore
from tests.compaction.dumps import Dump

SEGMENT = 256 * 1024


def filled(path: Path, *, entries: int = 6000, **options: Any) -> logstore.Store[bytes]:
    """Three streams: single adds first, then batches."""
    store = logstore.open(path, segment_bytes=SEGMENT, **options)
    for number in range(3):
        stream = store.stream(f"s{number}")
        for single in range(20):
            stream.add({"kind": "single", "n": single})
        stream.add_many(
            {"n": n, "text": f"value {n % 11}", "pad": "x" * 30} for n in range(entries)
        )
    return store


def delete_at_random(store: logstore.Store[bytes], share: float, seed: int = 7) -> None:
    chance = random.Random(seed)
    for name in store.streams():
        stream = store.stream(name)
        ids = [entry.id for entry in stream if chance.random() < share]
        for first in range(0, len(ids), 1000):
            stream.delete(*ids[first : first + 1000])


def logical(found: Dump) -> Dump:
    """Without what compaction may change: how entries are spread over nodes."""
    kept = {"length", "last-generated-id", "max-deleted-entry-id", "entries-added"}
    kept |= {"recorded-first-entry-id", "first-entry", "last-entry"}
    return Dump(
        found.entries,
        {name: {k: v for k, v in info.items() if k in kept} for name, info in found.infos.items()},
    )
