"""Opening without writing: a private index in a temporary directory.

A store, a backup or a copied directory is opened so, with or without permission to write, while
others write or nobody does; and what was shipped to a URI is read where it is. The index is built
from checkpoint, hints and log as recovery does it; with ``copy_index`` it is a copy of the one that
a clean close left, if there is one. Every read of a directory first takes in what was appended
since. Of a URI only what the index is built of is fetched: hints, the newest checkpoint, the
segment that was written to; what is read later is read from the URI then.

Invariants of a directory: nothing below it is written or removed, and nothing locked but by a
backup; a commit is taken in only when it is complete, and, where a living writer publishes in WAKE,
only when it was published. Whether one does is known where WAKE is the very file that writers of
this boot mapped, and reached by the mount by which the first of them did; elsewhere, as in another
container or in a copy, all complete commits of the log are taken in: those that were acknowledged,
and at most one that is about to be.

Invariants of a URI: nothing is written there; the view is of one state, the newest when it was
opened, whatever is shipped meanwhile; what is damaged is an error, and never fewer entries. Where a
ship took files away while they were read for the index, the newer state is opened instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logstore import format as fmt
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.shm import process_identity
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.errors import CorruptionError, DamagedStoreError, SnapshotExpiredError
from logstore.fs import LOCAL, FileSystem
from logstore.index.env import GaveUp, open_generation, translated
from logstore.index.txn import IndexTxn
from logstore.log import file_names, storefile
from logstore.log.shipped import ShippedFiles, ShipTarget
from logstore.options import StoreOptions
from logstore.recovery import create, index_validity, replay
from logstore.recovery.replay import take_in
from logstore.recovery.report import RecoveryReport
from logstore.store_path import UriPath

BUILD_TRIES = 5


@translated()
def open_engine(fs: FileSystem, path: Path, options: StoreOptions) -> tuple[Engine, RecoveryReport]:
    """An engine that only reads."""
    path = create.hold(fs, path)
    content = storefile.read(fs, path)
    report = RecoveryReport(why_not_trusted="read-only: a private index is built")
    home, here = fs.temporary_directory(), process_identity.boot_id()
    try:
        engine = private_engine(
            fs,
            path,
            home,
            content,
            options,
            lambda self: (
                (_copied_index(self, report) if options.copy_index else 0)
                or replay.build(self, report, lambda: published(self, here))
            ),
        )
        build(engine)
    except BaseException:
        fs.remove_tree(home)
        raise
    engine.follow = Follower(engine).follow
    return engine, report


def _copied_index(engine: Engine, report: RecoveryReport) -> int:
    """The generation that a clean close left behind, copied into the private directory; 0 if there
    is none. A copy saves reading the log.

    The mark of a clean close goes before anybody writes to the index: if it is there before the
    copy and after it, and is the same, nobody wrote meanwhile.
    """
    fs, marker = engine.fs, index_validity.read_marker(engine.fs, engine.path)
    if report.rebuilt or marker is None or not marker.clean_applied:
        return 0
    if index_validity.why_not(engine, marker):
        return 0
    number, data = (
        marker.generation,
        file_names.generation(engine.path, marker.generation) / "data.mdb",
    )
    copy = file_names.generation(engine.index_home, number)
    fs.remove_tree(copy)
    fs.make_directory(copy)
    source = fs.open(data)
    try:
        fs.copy_atomic(copy / data.name, source, 0, marker.clean_bytes)
    finally:
        source.close()
    again = index_validity.read_marker(fs, engine.path)
    if again != marker or index_validity.why_not(engine, marker):
        fs.remove_tree(copy)
        return 0
    try:
        index_validity.check_log_reaches(engine, marker.clean_applied)
        open_generation(fs, copy, number).close()
    except CorruptionError:  # a rebuild reports what is left
        fs.remove_tree(copy)
        return 0
    report.why_not_trusted, report.rebuilt = "", True
    return number


def private_engine(
    fs: FileSystem,
    path: Path,
    home: Path,
    content: storefile.StoreFile,
    options: StoreOptions,
    build: Callable[[Engine], int],
) -> Engine:
    """An engine whose locks, shared memory and index are below ``home``, a private directory:
    nothing below ``path`` is written, locked or removed. ``build`` makes its index."""
    Wake.create(fs, home / file_names.WAKE)
    engine = Engine(
        fs,
        path,
        content.uuid,
        content.limits,
        options,
        lock=WriterLock(fs, home / file_names.LOCK),
        users=None,
        wake=Wake(fs, home / file_names.WAKE),
        rebuild=build,
    )
    engine.index_home = home
    return engine


@translated()
def close_engine(engine: Engine) -> None:
    """Close, and remove the private index."""
    engine.release_files()
    engine.fs.remove_tree(engine.index_home)


def build(engine: Engine) -> None:
    """Build the private index; again if a compaction removed a segment meanwhile."""
    last: Exception | None = None
    for _ in range(BUILD_TRIES):
        try:
            engine.rebuild_locked()
        except (SegmentGone, FileNotFoundError, DamagedStoreError) as exc:
            last = exc
            continue
        generation = engine.index()
        with generation.env.begin() as txn:
            meta = IndexTxn(generation, txn).meta()
        engine.wake.publish(meta)
        return
    if isinstance(last, DamagedStoreError):
        raise last
    raise DamagedStoreError(
        "the store changed too fast to be read, or a segment is missing: try again, or run "
        "'logstore check'"
    ) from last


def published(engine: Engine, here: str) -> int | None:
    """Up to where a writer of this boot (``here``) has published; None if none says so: then the
    log itself decides."""
    fs, path = engine.fs, engine.path / file_names.WAKE
    words = Wake.peek(fs, path)
    if words is None or not words.applied:
        return None
    known = index_validity.read_marker(fs, engine.path)
    # Left behind by another boot, or a copy: older than the log beside it, it would hide commits.
    if not _is_of(here, known) or not Wake.is_itself(fs, path, mounted=True):
        return None
    return words.applied


def _is_of(here: str, known: index_validity.ShutdownMarker | None) -> bool:
    return known is not None and here != "" and known.identity.boot_id == here


def durable_upto(engine: Engine) -> int:
    """Up to where the log is durable, of what the private index has taken in; 0 if nothing says so.

    A lower bound: writers of this boot say it in WAKE, and a clean close, of any boot, in BOOT.
    """
    known = index_validity.read_marker(engine.fs, engine.path)
    found = 0 if known is None else known.durable
    if _is_of(process_identity.boot_id(), known):
        found = max(found, _told(engine, Wake.last_durable))
    return min(found, engine.wake.applied)


def unsynced_for_ms(engine: Engine) -> int:
    """How long the oldest commit that is not durable waits for that, as writers of this boot say in
    WAKE; 0: there is none, or nobody says so."""
    known = index_validity.read_marker(engine.fs, engine.path)
    if not _is_of(process_identity.boot_id(), known):
        return 0
    return _told(engine, Wake.unsynced_for_ms)


def _told(engine: Engine, look: Callable[[FileSystem, Path], int]) -> int:
    """What WAKE says, by whatever mount, of how much is durable: an older word of it says less; 0
    of a copy, of which nobody knows how much of it is durable."""
    path = engine.path / file_names.WAKE
    return look(engine.fs, path) if Wake.is_itself(engine.fs, path, mounted=False) else 0


class Follower:
    """Takes in commits that were appended since the last look."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._boot = process_identity.boot_id()
        self._seen: tuple[int, int] = (0, 0)  # active segment and its size when last looked at

    @translated()
    def follow(self) -> None:
        """Bring the private index up to the log; no close or fork takes it away meanwhile."""
        with self._engine.mutex:
            self._engine.check_open()
            bound = published(self._engine, self._boot)
            if bound is not None and bound <= self._engine.wake.log().applied:
                return
            looked = self._look()
            if bound is None and looked == self._seen:
                return
            try:
                self._take_in(bound)
            except (SegmentGone, FileNotFoundError, DamagedStoreError, GaveUp) as exc:
                log.info("the log could not be followed, and is read anew: %r", exc)
                build(self._engine)
            self._seen = looked

    def _look(self) -> tuple[int, int]:
        engine = self._engine
        newest = file_names.segments(engine.fs, engine.path)[-1]
        try:
            return newest, engine.fs.stat(file_names.segment(engine.path, newest)).size_bytes
        except FileNotFoundError:
            return newest, 0  # a compaction removed it: there is something to take in

    def _take_in(self, bound: int | None) -> None:
        engine = self._engine
        engine.wake.publish(take_in(engine, engine.index(), bound))


OPEN_TRIES = 3


@translated()
def open_shipped(path: Path, options: StoreOptions) -> tuple[Engine, RecoveryReport]:
    """An engine that only reads what was shipped to ``path``.

    NotAStoreError if nothing was; OptionError, FileSystemError and CorruptionError as of `Place`.
    """
    at = path if isinstance(path, UriPath) else UriPath.of(str(path))
    place = ShipTarget(at.uri)
    for left in reversed(range(OPEN_TRIES)):
        manifest = place.published()
        files = ShippedFiles(place, manifest.uuid, manifest.parts)
        try:
            return _open_shipped(files, at, manifest.position, options)
        except SnapshotExpiredError:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _open_shipped(
    files: ShippedFiles, path: UriPath, position: int, options: StoreOptions
) -> tuple[Engine, RecoveryReport]:
    content = storefile.read(files, path)
    report = RecoveryReport(why_not_trusted="shipped: a private index is built")
    home = LOCAL.temporary_directory()
    try:
        engine = private_engine(
            files, path, home, content, options, lambda self: replay.build(self, report)
        )
        build(engine)
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
