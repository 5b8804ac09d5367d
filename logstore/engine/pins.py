"""Pins: which segments compaction must not unlink, because a reader without a snapshot needs them.

A reader makes a pin of all segments, reads its snapshot, and narrows the pin to what it found. A
segment that such a snapshot names was still named by the index when the pin was durable already.
So ``pinned_segments`` is to be asked *after* the commit that took the last thing out of a segment:
then it tells of every pin that can name it.

Invariants: a pin is durable before the snapshot it is for is read; a snapshot file is removed after
its pin, never before; a pin that is past its end, or cannot be read, holds nothing back, and its
readers raise SnapshotExpired. Never decides what is dead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from logstore.fs import FileSystem
from logstore.log import names, pinfile
from logstore.log.pinfile import Pin


def create(fs: FileSystem, store: Path, now_ms: int, ttl_ms: int) -> Pin:
    """Pin every segment there is and every one to come, until ``narrow`` says which."""
    pin = Pin(pinfile.new_id(), None, now_ms + ttl_ms, ttl_ms, os.getpid())
    fs.make_directory(store / names.PINS)
    pinfile.write(fs, store, pin)
    return pin


def narrow(
    fs: FileSystem, store: Path, pin: Pin, segments: Iterable[int], now_ms: int, ttl_ms: int
) -> Pin:
    """Hold only what the snapshot names, for ``ttl_ms`` from now; SnapshotExpired if too late."""
    pinfile.check(fs, store, pin.id, now_ms)
    narrowed = pin._replace(segments=frozenset(segments), expires_ms=now_ms + ttl_ms, ttl_ms=ttl_ms)
    pinfile.write(fs, store, narrowed)
    return narrowed


def renew(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """Let a pin live longer; SnapshotExpired if it is over."""
    return pinfile.renew(fs, store, pin_id, now_ms)


def release(fs: FileSystem, store: Path, pin_id: str) -> None:
    """Give a pin back, and remove its snapshot file and what a killed writer left of it."""
    fs.remove(pinfile.path(store, pin_id))
    for name in fs.names(store / names.PINS):
        if name.startswith(pin_id + "."):
            fs.remove(store / names.PINS / name)


def living(fs: FileSystem, store: Path, now_ms: int) -> list[Pin]:
    """Pins that hold; what is left of others is removed where that is permitted."""
    found: dict[str, Pin] = {}
    listed = fs.names(store / names.PINS)
    for name in listed:
        if pinfile.is_id(name):
            pin = pinfile.read(fs, store, name)
            if pin is not None and pin.expires_ms > now_ms:
                found[name] = pin
            else:
                release(fs, store, name)
    for name in listed:
        stem = name.partition(".")[0]
        if stem != name and pinfile.is_id(stem) and stem not in found:
            _remove_orphan(fs, store, name, stem)
    return list(found.values())


def _remove_orphan(fs: FileSystem, store: Path, name: str, stem: str) -> None:
    """A snapshot file is made after its pin; a temporary pin is renamed at once."""
    if name.endswith(pinfile.SNAPSHOT) and not fs.exists(pinfile.path(store, stem)):
        fs.remove(store / names.PINS / name)


def pinned_segments(fs: FileSystem, store: Path, now_ms: int) -> set[int]:
    """Segments that a living pin names; ask after the commit that emptied a segment."""
    pinned: set[int] = set()
    for pin in living(fs, store, now_ms):
        pinned |= set(names.segments(fs, store)) if pin.segments is None else pin.segments
    return pinned


def revoke_all(fs: FileSystem, store: Path) -> int:
    """Remove every pin and snapshot file, for erasure; how many. Their readers must load again.

    A planner writes its snapshot file before it looks at its pin again: it finds the pin gone and
    takes its file away, or the file is there when the directory is listed once more.
    """
    count = 0
    while listed := list(filter(pinfile.is_ours, fs.names(store / names.PINS))):
        for name in listed:
            count += pinfile.is_id(name)
            fs.remove(store / names.PINS / name)
    return count
