"""What a store tells of itself: counts and sizes, pins, how far it is durable.

Invariants: what is counted in the index is of one moment; sizes of files are of the moment after.
Pins are what keeps segments from compaction; what is left of pins that ended goes when somebody who
may write looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from logstore.api.info import PinInfo, StoreInfo
from logstore.codec import codec_name
from logstore.compaction import deleted_bytes, reclaimable
from logstore.engine.lane import loading as lane
from logstore.engine.reading import loading as reading
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.control_block import Wake
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import OptionError, ReadOnlyError
from logstore.features.expiry import ExpiryRows
from logstore.features.schedule import ScheduleRows
from logstore.format import FRAME_HEAD_BYTES, position_parts
from logstore.index.keys import SegmentRow
from logstore.log import names, segment, shipfile, storefile
from logstore.log.pinfile import Pin
from logstore.log.shipfile import ShipRecord
from logstore.tuples import NamedTuple

_CORE = "pure" if None in (lane.native_or_none, reading.native_or_none) else "native"


class Sizes(NamedTuple):
    """What files a store takes up; told in a millisecond or two, however much it holds."""

    log_bytes: int
    disk_bytes: int


def sizes(engine: Engine) -> Sizes:
    """How large a store is, for monitors that ask every second."""
    segments = snapshot.read(engine, lambda view: [*view.index.segment_rows()])
    log_bytes = sum(_segment_bytes(engine, segments).values())
    return Sizes(log_bytes, engine.fs.tree_bytes(engine.path))


def stream_count(engine: Engine) -> int:
    """How many streams there are that have not expired; as quick."""

    def count(view: Snapshot) -> int:
        streams: int = view.index.generation.entries()["streams"]
        return streams - sum(1 for _ in ExpiryRows(view.index).expired(view.now_ms))

    return snapshot.read(engine, count)


def _segment_bytes(engine: Engine, numbers: Iterable[int]) -> dict[int, int]:
    return {number: engine.fs.size_bytes(names.segment(engine.path, number)) for number in numbers}


def store_info(engine: Engine) -> StoreInfo:
    """Counts and sizes of a store: seconds, of a long log in which something was deleted."""

    def collect(view: Snapshot) -> tuple[Any, ...]:
        rows = view.index.segment_rows()
        schedules = ScheduleRows(view.index)
        expired = list(ExpiryRows(view.index).expired(view.now_ms))  # they are gone for everybody
        scheduled = schedules.count() - sum(map(schedules.count, expired))
        generation = view.index.generation  # here alone no close or fork takes it away
        index = (generation.number, generation.used_bytes())
        return generation.entries(), rows, view.meta, scheduled, len(expired), index

    entries, rows, meta, scheduled, expired, index = snapshot.read(engine, collect)
    sizes = _segment_bytes(engine, rows)
    live = sum(row.live_bytes + row.live_nodes * FRAME_HEAD_BYTES for row in rows.values())
    gone = deleted_bytes.deleted_bytes(engine)
    oldest = min(gone, default=0)
    applied, durable = position_parts(meta.applied), position_parts(durable_upto(engine))
    compacted_ms, compacted_bytes = Wake.last_compaction(engine.fs, engine.path / names.WAKE)
    shipped = shipfile.read(engine.fs, engine.path)
    return StoreInfo(
        path=str(engine.path),
        uuid=engine.uuid.hex(),
        format_version=storefile.read(engine.fs, engine.path).version,
        streams=entries["streams"] - expired,
        scheduled=scheduled,
        nodes=entries["nodes"],
        segments=len(rows),
        log_bytes=sum(sizes.values()),
        live_node_bytes=live,
        index_bytes=index[1],
        index_generation=index[0],
        disk_bytes=engine.fs.tree_bytes(engine.path),
        deleted_bytes=sum(gone.values()),
        oldest_deleted_segment_ms=(_born_ms(engine, oldest, rows.get(oldest)) if oldest else 0),
        applied_segment=applied[0],
        applied_offset=applied[1],
        durable_segment=durable[0],
        durable_offset=durable[1],
        codec=codec_name(),
        core=_CORE,
        compacted_ms=compacted_ms,
        compacted_bytes=compacted_bytes,
        reclaimable_bytes=reclaimable.log_bytes(engine),
        **pin_counts(engine),
        shipped_ms=shipped.shipped_ms,
        shipped_to=shipped.uri,
        unshipped_bytes=_unshipped_bytes(shipped, sizes, meta.applied),
    )


def _unshipped_bytes(shipped: ShipRecord, sizes: dict[int, int], applied: int) -> int:
    """Bytes of the log that were written after what was shipped ended, if anything ever was."""
    number, offset = position_parts(shipped.position)
    if not shipped.shipped_ms or shipped.position == applied:
        return 0
    later = [each for each in sizes if each > number and each not in shipped.compacted]
    return max(0, sizes.get(number, offset) - offset) + sum(sizes[each] for each in later)


def durable_upto(engine: Engine) -> int:
    """The position up to which the log is durable; a lower bound, 0 if nothing tells."""
    if engine.options.readonly:
        from logstore.recovery import readonly

        return readonly.durable_upto(engine)
    return engine.wake.durable_upto


def _born_ms(engine: Engine, number: int, row: SegmentRow | None) -> int:
    """When a segment was made, as its file says; its row has the time of the commit that told of
    it, which is a little off, and another one after a rebuild."""
    try:
        file = engine.fs.open(names.segment(engine.path, number))
    except FileNotFoundError:
        return 0 if row is None else row.born_ms  # it was dropped since
    try:
        return segment.read_head(file, number, engine.uuid).created_ms
    finally:
        file.close()


# -- pins -------------------------------------------------------------------------------------
def living_pins(engine: Engine) -> list[Pin]:
    """The pins that hold; what is left of others goes, if this handle may write."""
    now_ms, clean = engine.clock.now_ms(), not engine.options.readonly
    return pins.living(engine.fs, engine.path, now_ms, clean=clean)


def pin_counts(engine: Engine) -> dict[str, int]:
    """How many pins there are, what they keep, when the oldest was made (unix ms)."""
    held = living_pins(engine)
    return {
        "pins": len(held),
        "pinned_bytes": pins.held_bytes(engine.fs, engine.path, held),
        "oldest_pin_ms": min((pin.made_ms for pin in held), default=0),
    }


def pin_infos(engine: Engine) -> list[PinInfo]:
    """The pins that hold, the oldest first."""
    fs, path = engine.fs, engine.path
    told = []
    for pin in living_pins(engine):
        both = pins.held_bytes(fs, path, [pin])
        alone = pins.held_bytes(fs, path, [pin._replace(segments=frozenset())])
        since = datetime.fromtimestamp(pin.made_ms / 1000, UTC) if pin.made_ms else None
        until = datetime.fromtimestamp(pin.expires_ms / 1000, UTC)
        segments = None if pin.segments is None else len(pin.segments)
        told.append(
            PinInfo(
                pin.id, pin.purpose, pin.host, pin.pid, since, until, segments, both - alone, alone
            )
        )
    return told


def moment(engine: Engine, names: Sequence[bytes]) -> str:
    """Keep how some streams, or all, are now; the token."""
    from logstore.scan import moment as moments

    if engine.options.readonly:
        raise ReadOnlyError("a moment cannot be kept through a store opened with readonly=True")
    return moments.keep(engine, names or None)


def release_pins(engine: Engine, ids: Sequence[str]) -> int:
    """Give pins back, all of them if none is named; how many. OptionError if one is not there."""
    if engine.options.readonly:
        raise ReadOnlyError("pins cannot be given back through a store opened with readonly=True")
    held = {pin.id for pin in living_pins(engine)}
    for pin_id in ids:
        if pin_id not in held:
            raise OptionError(f"there is no pin {pin_id!r}; see store.pins()")
    for pin_id in ids or held:
        pins.release(engine.fs, engine.path, pin_id)
    return len(ids or held)
