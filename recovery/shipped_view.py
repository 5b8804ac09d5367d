"""Opening what was shipped to a URI, to read from it where it is: a private index is built of it.

Only what the index is built of is fetched: hints, the newest checkpoint, the segment that was
written to. What is read later is read from the URI then.

Invariants: nothing is written at the URI; the view is of one state, the newest when it was opened,
whatever is shipped meanwhile; what is damaged is an error, and never fewer entries. Where a ship
took files away while they were read for the index, the newer state is opened instead.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.engine.runtime.engine import Engine
from logstore.errors import CorruptionError, SnapshotExpiredError
from logstore.fs import LOCAL
from logstore.index.env import translated
from logstore.log import storefile
from logstore.log.shipped import Place
from logstore.log.shipped_files import ShippedFiles
from logstore.options import StoreOptions
from logstore.recovery import readonly, replay
from logstore.recovery.report import RecoveryReport
from logstore.store_path import UriPath

OPEN_TRIES = 3


@translated()
def open_engine(path: Path, options: StoreOptions) -> tuple[Engine, RecoveryReport]:
    """An engine that only reads. NotAStoreError if nothing was shipped to ``path``; OptionError,
    FileSystemError and CorruptionError as of `Place`."""
    at = path if isinstance(path, UriPath) else UriPath.of(str(path))
    place = Place(at.uri)
    for left in reversed(range(OPEN_TRIES)):
        manifest = place.published()
        files = ShippedFiles(place, manifest.uuid, manifest.parts)
        try:
            return _opened(files, at, manifest.position, options)
        except SnapshotExpiredError:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _opened(
    files: ShippedFiles, path: UriPath, position: int, options: StoreOptions
) -> tuple[Engine, RecoveryReport]:
    content = storefile.read(files, path)
    report = RecoveryReport(why_not_trusted="shipped: a private index is built")
    home = LOCAL.temporary_directory()
    try:
        engine = readonly.private_engine(
            files, path, home, content, options, lambda self: replay.build(self, report)
        )
        readonly.build(engine)
        _refuse_damage(engine, report, path, position)
    except BaseException:
        LOCAL.remove_tree(home)
        raise
    return engine, report


def _refuse_damage(engine: Engine, report: RecoveryReport, path: UriPath, position: int) -> None:
    """CorruptionError for what a store of its own would be opened without: it can be sent anew."""
    segment, offset, why = 0, 0, ""
    if report.damage:
        segment, offset, _, why = report.damage[0]
    elif engine.wake.log().applied != position:
        segment, offset = fmt.position_parts(engine.wake.log().applied)
        why = "it ends before what was shipped"
    if why:
        raise CorruptionError(
            f"what was shipped to {path} is damaged ({why}): delete the object of this segment, "
            "and ship again from the store",
            segment=segment,
            offset=offset,
        )
