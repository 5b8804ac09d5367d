"""Pins: which segments compaction must not unlink, because a reader without a snapshot needs them.

A reader makes a pin of all segments, reads its snapshot, and narrows the pin to what it found. A
segment that such a snapshot names was still named by the index when the pin was durable already.
So ``pinned_segments`` is to be asked *after* the commit that took the last thing out of a segment:
then it sees every pin that can name it.

A pin is a lease: it is renewed while somebody reads, and ends by itself at most LEASE_MS_MAX later,
or when the process it is for is gone, where this process can see that.

Invariants: a pin is durable before the snapshot it is for is read; a snapshot file is removed after
its pin, never before; a pin that is past its end, or cannot be read, holds nothing back, and its
readers raise SnapshotExpiredError. Who unlinks a segment although a pin names it revokes the pin
first, durably: a reader looks at its pin again when a segment is missing, and takes what a pin
holds for damage. Never decides what is dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.fs import FileSystem
from logstore.log import file_names, pinfile
from logstore.log.pinfile import Pin

LEASE_MS_MAX = 3_600_000
PLANNING_MS = 10 * 60 * 1000  # until a plan narrows its pin


def create(fs: FileSystem, store: Path, now_ms: int, ttl_ms: int, *, purpose: str = "") -> Pin:
    """Pin every segment there is and every one to come, until ``narrow`` says which.

    For this process, until ``narrow`` says for whom.
    """
    me = process_identity.identity()
    pin = Pin(
        pinfile.new_id(),
        None,
        now_ms + ttl_ms,
        ttl_ms,
        me.pid,
        me.host,
        me.system,
        me.start,
        now_ms,
        purpose,
    )
    fs.make_directory(store / file_names.PINS)
    pinfile.write(fs, store, pin)
    return pin


@contextmanager
def planning(fs: FileSystem, store: Path, now_ms: int, *, purpose: str) -> Iterator[Pin]:
    """A pin while a plan is made, which the plan narrows; given back if planning fails."""
    pin = create(fs, store, now_ms, PLANNING_MS, purpose=purpose)
    try:
        yield pin
    except BaseException:
        release(fs, store, pin.id)
        raise


def narrow(
    fs: FileSystem,
    store: Path,
    pin: Pin,
    segments: Iterable[int],
    now_ms: int,
    ttl_ms: int,
    owner: Identity | None = None,
) -> Pin:
    """Hold only what the snapshot names, for ``ttl_ms`` from now. SnapshotExpiredError if the pin
    is over."""
    pinfile.check(fs, store, pin.id, now_ms)
    narrowed = pin._replace(segments=frozenset(segments), expires_ms=now_ms + ttl_ms, ttl_ms=ttl_ms)
    if owner is not None:
        narrowed = narrowed._replace(**owner._asdict())
    pinfile.write(fs, store, narrowed)
    return narrowed


def renew(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """Let a pin live longer; SnapshotExpiredError if it is over."""
    return pinfile.renew(fs, store, pin_id, now_ms)


def release(fs: FileSystem, store: Path, pin_id: str) -> None:
    """Give a pin back, and remove its snapshot file and what a killed writer left of it."""
    fs.remove(pinfile.path(store, pin_id))
    for name in fs.names(store / file_names.PINS):
        if name.startswith(pin_id + "."):
            fs.remove(store / file_names.PINS / name)


def living(fs: FileSystem, store: Path, now_ms: int, *, clean: bool = True) -> list[Pin]:
    """Pins that hold, the oldest first; what is left of others is removed if ``clean``."""
    pins: dict[str, Pin] = {}
    listed = fs.names(store / file_names.PINS)
    for name in listed:
        if pinfile.is_id(name):
            pin = pinfile.read(fs, store, name)
            if pin is not None and pin.expires_ms > now_ms and not owner(pin).is_gone():
                pins[name] = pin
            elif clean:
                release(fs, store, name)
    for name in listed if clean else ():
        stem = name.partition(".")[0]
        if stem != name and pinfile.is_id(stem) and stem not in pins:
            _remove_orphan(fs, store, name, stem)
    return sorted(pins.values(), key=lambda pin: (pin.made_ms, pin.id))


def owner(pin: Pin) -> Identity:
    """The process that a pin is for."""
    return Identity(pin.host, pin.system, pin.pid, pin.start)


def description(pin: Pin) -> str:
    """Which process has a pin, and since when, in words."""
    since = datetime.fromtimestamp(pin.made_ms / 1000, UTC).isoformat(" ", "seconds")[:19]
    when = f"since {since} UTC" if pin.made_ms else "for an unknown time"
    host = f" on {pin.host}" if pin.host else ""
    return f"{pin.purpose or 'a scan'} of process {pin.pid}{host}, {when} ({pin.id})"


def held_bytes(fs: FileSystem, store: Path, held: Iterable[Pin]) -> int:
    """Bytes of the segments, snapshot and staged files that pins keep; each counted once."""
    held = list(held)
    segments: set[int] = set()
    for pin in held:
        segments |= set(file_names.segments(fs, store)) if pin.segments is None else pin.segments
    files = [file_names.segment(store, number) for number in segments]
    files += [pinfile.snapshot_path(store, pin.id) for pin in held]
    staged = {name for name in fs.names(store / file_names.PINS) if name.endswith(pinfile.STAGED)}
    ids = {pin.id for pin in held}
    files += [store / file_names.PINS / name for name in staged if name.partition(".")[0] in ids]
    return sum(fs.size_bytes(file) for file in files)


def _remove_orphan(fs: FileSystem, store: Path, name: str, stem: str) -> None:
    """Snapshot and staged files are made after their pin; a temporary pin is renamed at once."""
    made_after = (pinfile.SNAPSHOT, pinfile.STAGED)
    if name.endswith(made_after) and not fs.exists(pinfile.path(store, stem)):
        fs.remove(store / file_names.PINS / name)


def pinned_segments(fs: FileSystem, store: Path, now_ms: int) -> set[int]:
    """Segments that a living pin names; ask after the commit that emptied a segment."""
    pinned: set[int] = set()
    for pin in living(fs, store, now_ms):
        pinned |= set(file_names.segments(fs, store)) if pin.segments is None else pin.segments
    return pinned


def revoke_all(fs: FileSystem, store: Path) -> int:
    """Remove every pin and snapshot file, durably, for erasure; how many pins. Their readers must
    load again.

    A planner writes its snapshot file before it looks at its pin again: it finds the pin gone and
    takes its file away, or the file is there when the directory is listed once more.
    """
    count = removed = 0
    while listed := list(filter(pinfile.is_ours, fs.names(store / file_names.PINS))):
        for name in sorted(listed, key=len):  # pins first: their names are the shortest
            count += pinfile.is_id(name)
            fs.remove(store / file_names.PINS / name)
        removed += len(listed)
    if removed:
        fs.sync_directory(store / file_names.PINS)
    return count


def revoke(fs: FileSystem, store: Path, segments: Collection[int]) -> int:
    """Remove, durably, the pins that may name one of these segments; how many."""
    count = 0
    for name in filter(pinfile.is_id, fs.names(store / file_names.PINS)):
        pin = pinfile.read(fs, store, name)
        if pin is not None and (pin.segments is None or not pin.segments.isdisjoint(segments)):
            release(fs, store, name)
            count += 1
    if count:
        fs.sync_directory(store / file_names.PINS)
    return count
