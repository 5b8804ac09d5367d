"""A store of an older format becomes one of today's, with a backup and a way back.

Opening a store for writing makes it one of today's format, too; this reads all of it before and
behind, and keeps what was. ``upgrade``: (1) the store is read; (2) it is copied, in its older
format; (3) the copy is read; (4) STORE says today's format; (5) the index is built. ``back_out``:
(1) the backup is read; (2) it is copied beside the store; (3) the upgraded store gets another name;
(4) the copy gets the store's; both are read.

Crash order: before (4) of an upgrade it is a store of the older format, and a copy that is not
whole has no STORE; behind it, one of today's, whose next opener builds the index. A back-out that
ends between (3) and (4) leaves no store under the name, and goes on when it is called again.

Invariants: nobody else has the store open meanwhile, of whatever version; a backup is never
changed; no entry is lost: what was added since an upgrade stays in the store that is put aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore import format as fmt
from logstore.engine.shm.users_file import Users
from logstore.errors import DamagedStoreError, NotAStoreError, OptionError, StoreInUseError
from logstore.fs import LOCAL, FileSystem
from logstore.log import file_names, storefile
from logstore.log.shipped import Progress
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import backup as backups
from logstore.recovery import check, store_opening
from logstore.tuples import NamedTuple

COMING = ".back-out"  # behind the name of a store: its backup, while that is copied


class Upgraded(NamedTuple):
    """What an upgrade did."""

    was_format: int
    format: int  # the same: nothing was to be done, and nothing was read
    backup: Path | None = None  # the store as it was
    streams: int = 0
    entries: int = 0


class BackedOut(NamedTuple):
    """What a back-out did."""

    was_format: int
    format: int  # of the backup, and now of the store
    aside: Path  # the upgraded store
    entries: int
    entries_aside: int


def upgrade(
    store: Path,
    backup: Path | None = None,
    *,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
) -> Upgraded:
    """Make a store one of the format that is written today.

    Args:
        backup: a new or empty directory; None: ``NAME.format-N``, beside the store.
        progress: is told how far it is with reading, and with copying.

    Raises:
        FormatVersionError: a later logstore made it.
        StoreInUseError: a process has it open, of whatever version.
        DamagedStoreError: it is damaged; nothing was changed.
        OptionError: the directory for the backup holds something.
    """
    store = store.resolve()
    was = storefile.read(fs, store).version
    if was == fmt.FORMAT_VERSION:
        return Upgraded(was, was)
    backup = beside(store, was) if backup is None else backup.absolute()
    if backup.is_relative_to(store):
        raise OptionError(f"{backup} is in the store itself: give a directory outside it")
    with _held(fs, store):
        found = _read_whole(fs, store, "the store", progress)
        backups.copy_closed(fs, store, backup, "the backup", progress=progress)
        copied = _read_whole(fs, backup, "the backup", progress)
        if (copied.streams, copied.entries) != (found.streams, found.entries):
            raise DamagedStoreError(f"{backup} does not hold what {store} does: upgrade it again")
        storefile.upgrade(fs, store, storefile.read(fs, store))
    options = StoreOptions(background=False)
    engine, _ = store_opening.open_engine(fs, store, options, create=False, limits=StoreLimits())
    store_opening.close_engine(engine)
    return Upgraded(was, fmt.FORMAT_VERSION, backup, found.streams, found.entries)


def back_out(
    store: Path,
    backup: Path | None = None,
    *,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
) -> BackedOut:
    """Put the backup of an upgrade in the place of the store, which gets the name
    ``NAME.format-N``.

    Args:
        backup: the one that `upgrade` made; None: the newest that stands beside the store.
        progress: is told how far it is with reading, and with copying.

    Raises:
        OptionError: there is no backup, or it is not an older format of this store; or something
            stands where the store would be put.
        StoreInUseError: a process has the store open.
        DamagedStoreError: the backup is damaged; nothing was changed.
    """
    store = store.resolve()
    coming = store.with_name(store.name + COMING)
    if not fs.exists(store) and fs.exists(coming / file_names.STORE):
        return _named_again(fs, store, coming, progress)
    now = storefile.read(fs, store)
    backup = _newest_beside(fs, store, now.version) if backup is None else backup
    then, aside = storefile.read(fs, backup), beside(store, now.version)
    if then.uuid != now.uuid or then.version >= now.version:
        raise OptionError(f"{backup} is not {store} in an older format: give its backup")
    if fs.exists(aside):
        raise OptionError(f"{aside} is in the way, where {store} is put: give it another name")
    with _held(fs, store):
        _read_whole(fs, backup, "the backup", progress)
        backups.copy_closed(fs, backup, coming, "the store", progress=progress)
        fs.rename(store, aside)
    return _named_again(fs, store, coming, progress)


def beside(store: Path, version: int) -> Path:
    """Where a store of some format is put, beside the one that has the name."""
    return store.with_name(f"{store.name}.format-{version}")


def _named_again(fs: FileSystem, store: Path, coming: Path, progress: Progress | None) -> BackedOut:
    """The last step, and what was done in all: the upgraded store has its other name."""
    then = storefile.read(fs, coming)
    aside = _newest_beside(fs, store, fmt.FORMAT_VERSION + 1)
    now = storefile.read(fs, aside)
    fs.rename(coming, store)
    fs.sync_directory(store.parent)
    kept, left = (check.check(each, progress=progress, fs=fs) for each in (store, aside))
    return BackedOut(now.version, then.version, aside, kept.entries, left.entries)


def _newest_beside(fs: FileSystem, store: Path, below: int) -> Path:
    for version in range(below - 1, fmt.OLDEST_VERSION - 1, -1):
        if fs.exists(beside(store, version) / file_names.STORE):
            return beside(store, version)
    raise OptionError(f"no backup of {store} stands beside it: say where it is")


@contextmanager
def _held(fs: FileSystem, store: Path) -> Iterator[None]:
    """Nobody else opens the store meanwhile; StoreInUseError while somebody has it open."""
    try:
        users = Users(fs, store)
    except FileNotFoundError:
        raise NotAStoreError(f"{store} has no {file_names.LOG}/, and so no entries") from None
    try:
        if not users.enter():
            raise StoreInUseError(f"{store} is open in another process: close it there first")
        yield
    finally:
        users.close()


def _read_whole(
    fs: FileSystem, path: Path, what: str, progress: Progress | None
) -> check.CheckReport:
    """Every frame; DamagedStoreError says where damage is.

    Bytes behind the last commit are refused, too: after a crash they may be nothing, but only the
    logstore that wrote them should say so.
    """
    found = check.check(path, progress=progress, careful=True, fs=fs)
    if found.tail_bytes:
        raise DamagedStoreError(
            f"{what} ends in {found.tail_bytes:,} bytes that are no commit: open it for writing "
            "once with the logstore that wrote it, which sets them aside, and close it",
            segment=found.tail_segment,
            offset=found.tail_offset,
        )
    for damage in found.damage:
        raise DamagedStoreError(
            f"{what} is damaged: {damage.why}; nothing was changed: 'logstore check {path}' says "
            "more, and 'logstore recover' mends it",
            segment=damage.segment,
            offset=damage.from_offset,
        )
    return found
