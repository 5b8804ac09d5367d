"""Rules of ``logstore doctor`` about a store as a whole: its bytes, its space, its index.

Invariants: a rule reads only, and yields nothing where nothing is to be done.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from logstore.api import units
from logstore.api.opening import opened_of
from logstore.engine.maintenance import space_alarm
from logstore.engine.shm.control_block import Wake
from logstore.log import names
from logstore.log.pinfile import Pin
from logstore.recovery import index_validity
from logstore.tools.finding import SLOW, SOON, WRONG, Finding, Look
from logstore.tools.output import readable


def damage(look: Look) -> Iterator[Finding]:
    """Bytes that are not what was written, and what is gone with them."""
    told = look.store.recovery
    if told["damage"] or told["gone"]:
        first = told["damage"][0] if told["damage"] else told["gone"][0]
        places = units.counted(len(told["damage"]), "damaged place")
        yield Finding(
            "damage",
            WRONG,
            "",
            f"the log has {places}, the first in segment {first['segment']}: {first['why']}; what "
            "stands beside it can be read",
            look.command("check"),
        )


def failed_sync(look: Look) -> Iterator[Finding]:
    """The disk refused to make something durable."""
    engine = opened_of(look.store).engine()
    if Wake.last_failure(engine.fs, look.path / names.WAKE):
        yield Finding(
            "failed-sync",
            WRONG,
            "",
            "a sync failed, so nobody knows what the disk has, and nothing more is acknowledged: "
            "close the store in every process, and look at the disk (dmesg)",
            look.command("recover"),
        )


def space(look: Look) -> Iterator[Finding]:
    """Too little room to go on, or to compact."""
    found = look.usage
    engine = opened_of(look.store).engine()
    used_up = bool(look.streams) and not engine.fs.exists(look.path / names.RESERVE)
    command = look.command("compact") if look.info.reclaimable_bytes else ""
    if used_up:
        yield Finding(
            "full",
            WRONG,
            "",
            "the disk was full, and the space that the store sets aside is used up: adds are "
            "refused until there is room again",
            command,
        )
    elif space_alarm.is_full(found.free_bytes, found.disk_bytes):
        yield Finding(
            "full",
            WRONG,
            "",
            f"the disk is full, {units.size(found.free_bytes)} are free: adds are refused until "
            "there is room again: make some, or trim a stream and compact",
            command,
        )
    elif space_alarm.is_low(engine, found.free_bytes, found.disk_bytes):
        free = f"{units.size(found.free_bytes)} ({units.share(found.free_bytes, found.disk_bytes)})"
        more = "" if command else ": set a retention, or move the store to a larger disk"
        yield Finding("space", SOON, "", f"only {free} of the disk is free{more}", command)


def reclaimable(look: Look) -> Iterator[Finding]:
    """Dead bytes that compaction would give back."""
    back, whole = look.info.reclaimable_bytes, look.info.log_bytes
    if back >= look.limits.large_bytes and back >= look.limits.back_share * whole:
        part = f"{units.size(back)} of {units.size(whole)} ({units.share(back, whole)})"
        yield Finding(
            "dead-share",
            SLOW,
            "",
            f"compaction would give back {part}; it runs by itself where a process has the store "
            "open with its background work",
            look.command("compact"),
        )


def pins(look: Look) -> Iterator[Finding]:
    """Pins that keep dead bytes from compaction."""
    for pin in look.usage.pins:
        kept = [use for use in look.usage.segments if pin.id in use.pins]
        dead = sum(use.dead_bytes + use.tombstoned_bytes for use in kept)
        if dead >= look.limits.large_bytes:
            yield Finding(
                "pin",
                SLOW,
                "",
                f"a pin of {_owner(pin)} keeps {units.counted(len(kept), 'segment')} with "
                f"{units.size(dead)} of dead bytes; what still reads by it ends with an error when "
                "it is given back",
                look.command("pins", "--release", pin.id),
            )


def _owner(pin: Pin) -> str:
    made = f", made {units.ago(units.at(pin.made_ms))}" if pin.made_ms else ""
    host = f" on {pin.host}" if pin.host else ""
    return f"{pin.purpose or 'a scan'} (process {pin.pid}{host}{made})"


def index(look: Look) -> Iterator[Finding]:
    """An index that the next opener has to build anew."""
    engine = opened_of(look.store).engine()
    why = index_validity.why_not(engine, index_validity.read_marker(engine.fs, engine.path))
    if why and look.info.log_bytes >= look.limits.large_bytes:
        yield Finding(
            "index",
            SLOW,
            "",
            f"the index is behind the log: {why}; who opens the store next waits until it is "
            "built anew",
            look.command("recover"),
        )


def codec(look: Look) -> Iterator[Finding]:
    """A package without its compiled parts."""
    parts = {"codec": look.info.codec, "core": look.info.core}
    missing = [name for name, found in parts.items() if found == "pure"]
    if missing:
        yield Finding(
            "codec",
            SLOW,
            "",
            f"the compiled {' and '.join(missing)} is missing, so everything takes many times as "
            "long: install "
            "logstore where a C compiler is, or from a wheel",
        )


def scheduled(look: Look) -> Iterator[Finding]:
    """Entries whose time has come, and that nobody adds."""
    if not look.info.scheduled:
        return
    now = datetime.now(UTC)
    for each in look.streams:
        due = look.store.stream(each.name).info().next_due
        if due is not None and now - due > look.limits.idle:
            yield Finding(
                "scheduled",
                WRONG,
                readable(each.name),
                f"entries were due {units.ago(due)} and are not added: no process has the store "
                "open with its background work",
                look.command("serve"),
            )


RULES = (damage, failed_sync, space, reclaimable, pins, index, codec, scheduled)
