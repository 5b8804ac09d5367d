"""Between the faces and the engine: opening, closing and caring for a store.

Invariants: one shared engine a store and process; what a face asks of recovery or compaction goes
through here, so that the faces know no logic of the disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.codec import codec_name
from logstore.engine import registry
from logstore.engine.commit import pipeline
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance.worker import Compact
from logstore.engine.registry import Shared
from logstore.engine.runtime import reserve, snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.shm.control_block import Wake
from logstore.errors import OptionError, StoreGoneError
from logstore.features.expiry import ExpiryRows
from logstore.features.schedule import ScheduleRows
from logstore.format import FRAME_HEAD_BYTES, position_parts
from logstore.fs import LOCAL, FileSystem
from logstore.heldpath import HeldPath
from logstore.index.keys import SegmentRow
from logstore.log import names, segment, storefile
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import open_store

if TYPE_CHECKING:
    from logstore.api.info import StoreInfo
    from logstore.engine.runtime.background import Pause

_ENGINE = "interpreted" if (pipeline.__file__ or ".py").endswith(".py") else "compiled"
FILES: list[FileSystem] = [LOCAL]  # tests put one in its place that fails or crashes


def acquire(
    path: Path, options: StoreOptions, limits: StoreLimits, *, create: bool,
    uuid: bytes | None = None,
) -> Shared:  # fmt: skip
    """The shared engine of the store at ``path``; StoreGoneError if it is not that of ``uuid``."""
    fs = FILES[0]
    if isinstance(path, HeldPath):
        path = fs.hold(path)

    def key() -> registry.Key | None:
        try:
            found = fs.stat(path)
        except FileNotFoundError:
            return None
        return found.device, found.inode, options.readonly

    def find() -> tuple[registry.Key, Shared]:
        if options.readonly:
            from logstore.recovery import readonly

            engine, report = readonly.open_engine(fs, path, options)
            close = readonly.close_engine
        else:
            engine, report = open_store.open_engine(fs, path, options, create=create, limits=limits)
            close = open_store.close_engine
        # Of what was opened: another directory may stand at ``path`` by now.
        found = fs.stat(engine.path)
        made = found.device, found.inode, options.readonly
        return made, Shared(engine, close, report, _compacting)

    shared = registry.acquire(key, find, options)
    if uuid is not None and shared.engine.uuid != uuid:
        registry.release(shared)
        raise StoreGoneError(
            f"{path} is another store than the one that this handle was made for, which was "
            "renamed, removed or replaced meanwhile: open the one that you mean by its path"
        )
    return shared


def _compacting(engine: Engine, committer: Committer) -> Compact:
    """What compacts in the background: the engine stands below compaction and knows it not."""
    found: Compact | None = None

    def tick(pause: Pause) -> None:
        nonlocal found
        if found is None:  # loaded by its thread, and not by who opens a store for a moment
            from logstore.compaction.background import Compactor

            found = Compactor(engine, committer).tick
        found(pause)

    return tick


def release(shared: Shared) -> None:
    """Give one use of a shared engine back."""
    registry.release(shared)


def abandon(shared: Shared) -> None:
    """A handle was forgotten without closing: its use is given back soon, quietly."""
    registry.forget(shared)


def check_limits(shared: Shared, wanted: dict[str, int]) -> None:
    """OptionError if limits were asked for that the store was not created with."""
    for name, value in wanted.items():
        found = getattr(shared.engine.limits, name)
        if found != value:
            raise OptionError(
                f"the store was created with {name}={found}, or set to it, and opening it does not "
                f"change that to {value}: "
                "leave the option out, or make a new store and export into it"
            )


def store_info(shared: Shared) -> StoreInfo:
    """Counts and sizes of a store."""
    from logstore.api import pins
    from logstore.api.info import StoreInfo
    from logstore.compaction import reclaimable
    from logstore.engine.maintenance import deleted_bytes

    engine = shared.engine

    def collect(view: Snapshot) -> tuple[Any, ...]:
        rows = view.index.segment_rows()
        schedules = ScheduleRows(view.index)
        expired = list(ExpiryRows(view.index).expired(view.now_ms))  # they are gone for everybody
        scheduled = schedules.count() - sum(map(schedules.count, expired))
        generation = view.index.generation  # here alone no close or fork takes it away
        index = (generation.number, generation.used_bytes())
        return generation.entries(), rows, view.meta, scheduled, len(expired), index

    entries, rows, meta, scheduled, expired, index = snapshot.read(engine, collect)
    sizes = {}
    for number in rows:
        try:
            sizes[number] = engine.fs.stat(names.segment(engine.path, number)).size_bytes
        except FileNotFoundError:
            sizes[number] = 0
    live = sum(row.live_bytes + row.live_nodes * FRAME_HEAD_BYTES for row in rows.values())
    gone = deleted_bytes.deleted_bytes(engine)
    oldest = min(gone, default=0)
    applied, durable = position_parts(meta.applied), position_parts(durable_upto(shared))
    compacted_ms, compacted_bytes = Wake.last_compaction(engine.fs, engine.path / names.WAKE)
    return StoreInfo(
        path=str(engine.path), uuid=engine.uuid.hex(),
        format_version=storefile.read(engine.fs, engine.path).version,
        streams=entries["streams"] - expired, scheduled=scheduled, nodes=entries["nodes"],
        segments=len(rows), log_bytes=sum(sizes.values()), live_node_bytes=live,
        index_bytes=index[1], index_generation=index[0],
        disk_bytes=engine.fs.tree_bytes(engine.path), deleted_bytes=sum(gone.values()),
        oldest_deleted_segment_ms=(
            _born_ms(engine, oldest, rows.get(oldest)) if oldest else 0
        ),
        applied_segment=applied[0], applied_offset=applied[1],
        durable_segment=durable[0], durable_offset=durable[1],
        codec=codec_name(), engine=_ENGINE,
        compacted_ms=compacted_ms, compacted_bytes=compacted_bytes,
        reclaimable_bytes=reclaimable.log_bytes(engine), **pins.pin_counts(engine),
    )  # fmt: skip


def durable_upto(shared: Shared) -> int:
    """The position up to which the log is durable; a lower bound, 0 if nothing tells."""
    engine = shared.engine
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


def compact(shared: Shared, *, purge: bool, threshold: float) -> Any:
    """Compaction by call."""
    from logstore.compaction import runner

    def run() -> Any:
        return runner.run(shared.engine, shared.committer, purge=purge, threshold=threshold)

    with shared.caretaker.aside():
        return reserve.freeing(shared.engine, run)


def checkpoint(shared: Shared) -> int:
    """A checkpoint by call."""
    from logstore.engine.maintenance import checkpoint as checkpoints

    with shared.caretaker.aside():
        return checkpoints.take(shared.engine, shared.committer)


def backup(shared: Shared, target: Path) -> None:
    """A backup by call."""
    from logstore.recovery import backup as backups

    if target.absolute().is_relative_to(shared.engine.path):
        raise OptionError(f"{target} is in the store itself: give a directory outside it")
    with shared.caretaker.aside():
        backups.take(shared.engine, shared.committer, target)
