"""What of a plan is known to be lost before anything is read: its segments are gone, or cut short.

A pin keeps the segments of a plan from compaction. So one that is not there, or is shorter than it
was when it was sealed, was damaged by somebody else, and which nodes that concerns stands in the
plan. Invariants: sound segments cost a look at the name of each, and nothing of them is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore import format as fmt
from logstore.codec.node_list import read_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import CorruptionError
from logstore.log import file_names, pinfile
from logstore.scan import snapshot_file as snapshotfile
from logstore.scan.losses import Loss, Losses
from logstore.scan.split_plan import Plan


def known(engine: Engine, made: Plan) -> list[Loss]:
    """The losses, in the order of the plan. None are known where no pin in the store holds them."""
    if not made.pin_id or made.splits[0].home != made.splits[0].store:
        return []
    there = _sizes(engine, made.pin_id)
    if not there:
        return []
    losses = Losses(passed_over=True)
    for split in made.splits:
        for section, items in snapshotfile.read(engine.fs, split):
            at, lost_upto = 0, -1
            while (one := read_item(items, at)) is not None:
                item, after = one
                segment, offset = fmt.position_parts(item.position)
                end = offset + fmt.FRAME_HEAD_BYTES + item.size_bytes
                if end > there.get(segment, end):
                    error = _error(segment, there[segment])
                    losses.met(section, item, error, beside=at == lost_upto)
                    lost_upto = after
                at = after
    return losses.found


def _sizes(engine: Engine, pin_id: str) -> dict[int, int]:
    """How many bytes there are of the pinned segments that are shorter than they should be."""
    pin = pinfile.read(engine.fs, engine.path, pin_id)
    if pin is None or pin.segments is None:
        return {}
    sealed = snapshot.read(engine, _sealed_bytes, sorted(pin.segments))
    sizes = {
        number: engine.fs.size_bytes(file_names.segment(engine.path, number)) for number in sealed
    }
    return {number: size for number, size in sizes.items() if size < max(1, sealed[number])}


def _sealed_bytes(view: Snapshot, numbers: Sequence[int]) -> dict[int, int]:
    """How large segments were when they were sealed; 0 of one that is not."""
    rows = {number: view.index.segment(number) for number in numbers}
    return {number: 0 if row is None else row.total_bytes for number, row in rows.items()}


def _error(segment: int, size_bytes: int) -> CorruptionError:
    why = f"the segment's file ends at {size_bytes}" if size_bytes else "the segment's file is gone"
    return CorruptionError(
        f"{why}: restore it from a backup, or see docs/recovery.md", segment=segment
    )
