"""WAKE: a mapped file of words that all processes of a store share.

Invariants: words change only under the writer lock, but for the two that only grow safer when stale
(``durable_upto`` is a lower bound, ``lock_waiting`` costs at most 5 ms); ``indexed_upto`` is a
lower bound of what LMDB has committed in the generation that is valid; a word is stored and loaded
whole, and in order (``mapped.words``), since others read it without the lock; ``in_progress`` is
stored last, so that a process killed among the words leaves it set; the file is fully allocated and
created by rename; only ``failed_at`` is looked at after the last process is gone. Every process
that has the store open holds a flock on the file that it mapped, shared, for as long as it is
mapped: a file that nobody holds is not theirs, whatever stands in it. Who has read words and is
about to act on them asks whether they were ``lost``. Who has not the store open believes nothing of
what stands in the file unless it ``is_itself``. What readers wait on stands behind the words
(``shm.wait_words``). Knows nothing of frames or of the index.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

from logstore import fsinfo, mapped
from logstore.clock import monotonic_ms
from logstore.engine.shm import futex
from logstore.engine.shm.wait_words import WAITERS_OFFSET, Waits
from logstore.engine.shm.waiters import TABLE_BYTES, waiting_in
from logstore.errors import DiskFullError, FileSystemError, StoreError, UnreadableError
from logstore.fs import FileSystem
from logstore.tuples import NamedTuple

MAGIC = b"LGSTWAK\x09"
SIZE_BYTES = 160 * 1024
# Of copies of the words, as they were read from the file.
_WORDS: Final = struct.Struct("@7Q")
_ONE: Final = struct.Struct("@Q")
_TWO: Final = struct.Struct("@2Q")
_LOG_OFFSET: Final = 8
_PROGRESS_OFFSET: Final = _LOG_OFFSET + 6 * 8
_GENERATION_OFFSET: Final = _LOG_OFFSET + 5 * 8
_INDEXED_OFFSET: Final = _LOG_OFFSET + 7 * 8
_DURABLE_OFFSET: Final = _LOG_OFFSET + 64
_UNSYNCED_OFFSET: Final = _DURABLE_OFFSET + 8
_FAILED_OFFSET: Final = _UNSYNCED_OFFSET + 8
_OWNER_OFFSET: Final = _FAILED_OFFSET + 8
_NAMESPACE_OFFSET: Final = _OWNER_OFFSET + 16
_DROPPED_OFFSET: Final = _NAMESPACE_OFFSET + 8
_INDEX_FILES_OFFSET: Final = _DROPPED_OFFSET + 8
_FULL_OFFSET: Final = _INDEX_FILES_OFFSET + 16
_DUE_OFFSET: Final = _FULL_OFFSET + 8
_COMPACTED_OFFSET: Final = _DUE_OFFSET + 8
_READERS_OFFSET: Final = _COMPACTED_OFFSET + 16
_COUNT_OFFSET: Final = _READERS_OFFSET + 8
_WAITING_OFFSET: Final = 192  # a cache line of its own
_LOCK_FILE_OFFSET: Final = 256
_MADE_AS_OFFSET: Final = _LOCK_FILE_OFFSET + 8
_MADE_AS: Final = struct.Struct("@4Q")
_END: Final = _MADE_AS_OFFSET + _MADE_AS.size  # what readers wait on is behind it
WAIT_SLICE_S = 0.005


class LogWords(NamedTuple):
    """Where the log stands, as the last writer left it."""

    applied: int  # position where the last published commit ends
    commit: int
    last_frame: int
    last_crc: int
    active_segment: int
    generation: int  # of the index
    in_progress: int  # number of the commit that is being written; 0: none


_LOG_WORDS: Final = len(LogWords._fields)
# Of a tuple that is there: 2,000 instructions less than to call the class, in every commit.
_new: Final = tuple.__new__


def _first_bytes(fs: FileSystem, path: Path, count: int) -> bytes:
    """The first bytes of a file, read without mapping; empty if there is none, or it cannot be
    read."""
    try:
        file = fs.open(path)
    except (FileNotFoundError, FileSystemError):
        return b""
    try:
        return file.pread(count, 0)
    except FileSystemError:
        return b""
    finally:
        file.close()


def _looked_at(fs: FileSystem, path: Path) -> bytes:
    """The words of a file, read without mapping; zeros if there is no such file of this version."""
    none = bytes(_WAITING_OFFSET)
    data = _first_bytes(fs, path, _WAITING_OFFSET)
    return data if len(data) == len(none) and data[: len(MAGIC)] == MAGIC else none


class NotHeldError(Exception):
    """No living process has mapped this file: it stands in the place of theirs."""


def _mapped(fs: FileSystem, path: Path, *, hold: bool, join: bool) -> tuple[Any, tuple[int, int]]:
    """The memory, and device and inode of the file.

    The memory has a descriptor of its own, of the same open file: it keeps the flock while it is
    mapped, as long as nobody unlocks it.
    """
    file = fs.open(path, write=True)
    try:
        found = file.stat()
        if found.size_bytes != SIZE_BYTES:
            raise StoreError(
                f"{path} has {found.size_bytes} bytes, not {SIZE_BYTES}, and is not a wake file: "
                f"{_ANEW}"
            )
        if join and file.try_lock(exclusive=True):
            raise NotHeldError
        if hold and not file.try_lock(exclusive=False):
            raise StoreError(f"{path} is locked by another program, not by logstore: {_ANEW}")
        # All of it: a page that the disk does not give back would end the process once mapped.
        if file.pread(SIZE_BYTES, 0)[: len(MAGIC)] != MAGIC:
            raise StoreError(f"{path} is not a wake file of this version: {_ANEW}")
        memory = file.map(writable=True)
    finally:
        file.close()
    return memory, found[:2]


_ANEW = "close the store in every process, and open it again; it is made anew"


def _fits(fs: FileSystem, path: Path) -> bool:
    """Whether a file has blocks enough, and no other name under which it is somebody else's."""
    try:
        file = fs.open(path)
    except (FileNotFoundError, FileSystemError):
        return False
    try:
        found = file.stat()
        return found.size_bytes >= SIZE_BYTES and found.links == 1
    finally:
        file.close()


def _write_over(fs: FileSystem, path: Path, data: bytearray) -> None:
    file = fs.open(path, write=True)
    try:
        file.pwrite(data, 0)
        file.truncate(SIZE_BYTES)
    finally:
        file.close()


class _Word:
    """One word as an attribute of ``Wake``: loaded and stored whole."""

    __slots__ = ("_at",)

    def __init__(self, offset: int) -> None:
        self._at = offset >> 3

    def __get__(self, wake: Wake, _wakes: type[Wake]) -> int:
        return wake._words[self._at]  # noqa: SLF001  (it is a part of it)

    def __set__(self, wake: Wake, value: int) -> None:
        wake._words[self._at] = value  # noqa: SLF001


class _SomeWords:
    """Words that stand together as an attribute of ``Wake``, each loaded and stored whole."""

    __slots__ = ("_at", "_end")

    def __init__(self, offset: int, count: int) -> None:
        self._at, self._end = offset >> 3, (offset >> 3) + count

    def __get__(self, wake: Wake, _wakes: type[Wake]) -> tuple[int, ...]:
        return wake._words.some(self._at, self._end - self._at)  # noqa: SLF001

    def __set__(self, wake: Wake, values: tuple[int, ...]) -> None:
        words = wake._words  # noqa: SLF001
        for at, value in zip(range(self._at, self._end), values, strict=True):
            words[at] = value


class Wake:
    """The mapped words."""

    def __init__(
        self, fs: FileSystem | None, path: Path, *, hold: bool = False, join: bool = False
    ) -> None:
        """Map the file at ``path``; without a file system words of nobody: all are 0.

        ``hold``: as a process does that has the store open; ``join``: and that others have open.
        NotHeldError if they have not this file.
        """
        self._map: Any = bytearray(SIZE_BYTES)
        self.file_id: tuple[int, int] = (0, 0)  # device and inode
        self._guard: Any = None  # without a file there is nothing to lose
        if fs is not None:
            self._map, self.file_id = _mapped(fs, path, hold=hold, join=join)
            self._guard = mapped.guard_memory(self._map)
        self._words = mapped.words(self._map)
        self._address = mapped.address_of(self._map)
        self.waits = Waits(memoryview(self._map), self._address)

    @property
    def lost(self) -> bool:
        """Whether the file was cut, or a page of it cannot be read: what is read here is zeros."""
        guard = self._guard
        return guard is not None and guard.lost

    @property
    def memory(self) -> Any:
        """The mapped bytes: for compiled code, which must let go of them before they are closed."""
        return self._map

    @staticmethod
    def create(fs: FileSystem, path: Path, failed_at: int = 0, spare: Path | None = None) -> None:
        """A fresh file, every block allocated, in place by rename. Nobody has the store open.

        On a full disk ``spare``, a file that holds blocks for such a moment, becomes it; if that is
        gone, the file of the last process is written over. It is never without a name, and the
        failed sync that it may name stands in it at every moment.
        """
        temporary = path.with_name(path.name + ".tmp")
        fresh = bytearray(SIZE_BYTES)
        fresh[: len(MAGIC)] = MAGIC
        fresh[_FAILED_OFFSET : _FAILED_OFFSET + _ONE.size] = _ONE.pack(failed_at)
        try:
            file = fs.open_new(temporary)
            try:
                file.allocate(SIZE_BYTES)
                file.pwrite(fresh, 0)
            finally:
                file.close()
        except DiskFullError:
            fs.remove(temporary)
            if spare is not None and _fits(fs, spare):
                fs.rename(spare, temporary)
                _write_over(fs, temporary, fresh)
            elif _fits(fs, path):
                _write_over(fs, path, fresh)
                return
            else:
                raise
        fs.rename(temporary, path)

    @staticmethod
    def last_failure(fs: FileSystem, path: Path) -> int:
        """The position of a failed sync that the last process left, in a file of any version.
        UnreadableError if that cannot be known."""
        try:
            file = fs.open(path)
        except (FileNotFoundError, FileSystemError):
            return 0
        try:
            data = file.pread(_FAILED_OFFSET + _ONE.size, 0)
        except UnreadableError as exc:
            raise type(exc)(
                f"the disk does not give back {path}, where an earlier failed sync would stand: if "
                "no process has the store open, remove that file, open the store, and run "
                "'logstore check'",
                offset=exc.offset,
            ) from exc
        finally:
            file.close()
        if len(data) < _FAILED_OFFSET + _ONE.size or data[: len(MAGIC) - 1] != MAGIC[:-1]:
            return 0
        position: int = _ONE.unpack_from(data, _FAILED_OFFSET)[0]
        return position

    @staticmethod
    def peek(fs: FileSystem, path: Path) -> LogWords | None:
        """Where the log stands, read without mapping or writing; None if there is no such file, or
        it cannot be read."""
        data = _first_bytes(fs, path, _DURABLE_OFFSET)
        if len(data) < _DURABLE_OFFSET or data[: len(MAGIC)] != MAGIC:
            return None
        return LogWords._make(_WORDS.unpack_from(data, _LOG_OFFSET))

    @staticmethod
    def is_itself(fs: FileSystem, path: Path, *, mounted: bool) -> bool:
        """Whether it is, by device, inode and creation time, the file that its first opener mapped,
        and no copy of it, nor the one of a snapshot of its disk; read without mapping.

        ``mounted``: and is reached by the same mount, too. Else it may be a snapshot that was
        mounted in the place of what it is of: that has even the same device number then.
        """
        data = _first_bytes(fs, path, _END)
        if len(data) < _END or data[: len(MAGIC)] != MAGIC:
            return False
        made = _MADE_AS.unpack_from(data, _MADE_AS_OFFSET)
        found = fsinfo.file_identity(path)
        if mounted:
            return all(found) and found == made
        return found[2] != 0 and found[1:] == made[1:]

    @staticmethod
    def last_compaction(fs: FileSystem, path: Path) -> tuple[int, int]:
        """``compacted``, read without mapping; 0, 0 if there is no such file."""
        at_ms, size = _TWO.unpack_from(_looked_at(fs, path), _COMPACTED_OFFSET)
        return at_ms, size

    @staticmethod
    def last_durable(fs: FileSystem, path: Path) -> int:
        """``durable_upto``, read without mapping; 0 if there is no such file."""
        position: int = _ONE.unpack_from(_looked_at(fs, path), _DURABLE_OFFSET)[0]
        return position

    @staticmethod
    def unsynced_for_ms(fs: FileSystem, path: Path) -> int:
        """How long the oldest commit that is not durable waits for that, read without mapping; 0:
        there is none."""
        since_ms: int = _ONE.unpack_from(_looked_at(fs, path), _UNSYNCED_OFFSET)[0]
        return max(0, monotonic_ms() - since_ms) if since_ms else 0

    @staticmethod
    def waiting(fs: FileSystem, path: Path) -> dict[int, int]:
        """How many readers wait, by the number of their group, read without mapping."""
        if not any(_looked_at(fs, path)):
            return {}
        try:
            file = fs.open(path)
        except (FileNotFoundError, FileSystemError):
            return {}
        try:
            return waiting_in(file.pread(TABLE_BYTES, WAITERS_OFFSET))
        finally:
            file.close()

    # -- the log ------------------------------------------------------------------------------
    def log(self) -> LogWords:
        """Where the log stands."""
        return _new(LogWords, self._words.some(_LOG_OFFSET >> 3, _LOG_WORDS))

    def set_log(self, words: LogWords) -> None:
        """Publish where the log stands."""
        self._store(_LOG_OFFSET, words)

    def _store(self, offset: int, values: tuple[int, ...]) -> None:
        """Set words, one by one, in this order."""
        for at, value in enumerate(values, offset >> 3):
            self._words[at] = value

    def publish(self, stands: tuple[Any, ...], indexed_upto: int = -1) -> None:
        """The commit in progress is over, and the log stands there: the first five of ``LogWords``,
        and what may follow them. So does the index, unless it is said where that stands.
        """
        # First: who loads ``applied`` and then this one knows that the index lacks nothing.
        words: Any = self._words  # as ``_store`` does
        words[_INDEXED_OFFSET >> 3] = stands[0] if indexed_upto < 0 else indexed_upto
        words[_LOG_OFFSET >> 3] = stands[0]
        words[(_LOG_OFFSET >> 3) + 1] = stands[1]
        words[(_LOG_OFFSET >> 3) + 2] = stands[2]
        words[(_LOG_OFFSET >> 3) + 3] = stands[3]
        words[(_LOG_OFFSET >> 3) + 4] = stands[4]
        words[_PROGRESS_OFFSET >> 3] = 0  # last: a process killed among them leaves it set

    def begin(self, commit: int) -> None:
        """A commit is in progress from here on."""
        self._words[_PROGRESS_OFFSET >> 3] = commit

    @property
    def in_progress(self) -> int:
        """The number of the commit that is being written; 0: none."""
        return self._words[_PROGRESS_OFFSET >> 3]

    @property
    def applied(self) -> int:
        """The position where the last published commit ends."""
        return self._words[_LOG_OFFSET >> 3]

    def generation(self) -> int:
        """The number of the index generation that is valid."""
        return self._words[_GENERATION_OFFSET >> 3]

    # -- the index ----------------------------------------------------------------------------
    @property
    def indexed_upto(self) -> int:
        """A position up to which the index has everything; a lower bound.

        A reader loads ``applied`` first, then this, and then begins its snapshot: if this is not
        below, the snapshot has all that was published.
        """
        return self._words[_INDEXED_OFFSET >> 3]

    @indexed_upto.setter
    def indexed_upto(self, position: int) -> None:
        """LMDB has committed all up to there; 0 while the generation is switched. LOCK is held."""
        self._words[_INDEXED_OFFSET >> 3] = position

    # -- durability ---------------------------------------------------------------------------
    @property
    def durable_upto(self) -> int:
        """A position below which everything is durable; a lower bound."""
        return self._words[_DURABLE_OFFSET >> 3]

    def raise_durable(self, position: int) -> None:
        """Everything below ``position`` is durable."""
        if position > self.durable_upto:
            self._words[_DURABLE_OFFSET >> 3] = position

    def reset_durable(self, position: int) -> None:
        """Set at first open, and after un-synced bytes were cut."""
        self._words[_DURABLE_OFFSET >> 3] = position

    # Monotonic time of the oldest commit that is not durable; 0: none.
    oldest_unsynced_ms = _Word(_UNSYNCED_OFFSET)

    # The position from which on a sync failed; 0: none did.
    failed_at = _Word(_FAILED_OFFSET)

    # -- processes ----------------------------------------------------------------------------
    @property
    def owner(self) -> tuple[int, int]:
        """Pid and start time (clock ticks since boot) of the last taker of the writer lock."""
        pid, start = self._words.some(_OWNER_OFFSET >> 3, 2)
        return pid, start

    def set_owner(self, packed: bytes) -> None:
        """Name the taker of the writer lock: two packed words."""
        self._store(_OWNER_OFFSET, _TWO.unpack(packed))

    # The pid namespace of the processes that have the store open.
    namespace = _Word(_NAMESPACE_OFFSET)

    # Inodes of the valid generation's two files; 0, 0: not known.
    index_files = _SomeWords(_INDEX_FILES_OFFSET, 2)

    # How many segments were dropped: when it changes, close stale maps.
    dropped = _Word(_DROPPED_OFFSET)

    # When compaction last gave space back (unix ms), and how many bytes it gave in all.
    compacted = _SomeWords(_COMPACTED_OFFSET, 2)

    # Counts up when a process opened the index, or freed waiters of its readers: if somebody had
    # taken a living process's lock away, its waiters are gone from then on (``reopen``).
    readers_changed = _Word(_READERS_OFFSET)

    # From when on (monotonic time) any process may count tombstones again; the first one does.
    next_count_ms = _Word(_COUNT_OFFSET)

    @property
    def full(self) -> bool:
        """Whether the space set aside was given up: what only adds must wait."""
        return self._words[_FULL_OFFSET >> 3] != 0

    @full.setter
    def full(self, value: bool) -> None:
        self._words[_FULL_OFFSET >> 3] = value

    # When the next scheduled entry of all streams is due (unix ms); 0: there is none.
    next_due_ms = _Word(_DUE_OFFSET)

    # The inode of LOCK, as the first opener found it.
    lock_file = _Word(_LOCK_FILE_OFFSET)

    # What the first opener found this file to be (``fsinfo.file_identity``): a copy says the same,
    # and is another file.
    made_as = _SomeWords(_MADE_AS_OFFSET, 4)

    # -- waiting for the writer lock ----------------------------------------------------------
    def announce_waiting(self) -> None:
        """Whoever releases the writer lock from now on wakes us; try the lock once more first."""
        self._words[_WAITING_OFFSET >> 3] = 1

    def wait_unlock(self) -> None:
        """Sleep until the writer lock is released, at most some milliseconds."""
        futex.wait(self._address + _WAITING_OFFSET, 1, WAIT_SLICE_S)

    def signal_unlock(self) -> bool:
        """LOCK was released: wake one of those who wait for it, and those who wait for the commit.

        The one that wakes marks once more that somebody waits, tries, and wakes the next. True if
        somebody waited for LOCK.
        """
        waited = self._words[_WAITING_OFFSET >> 3] != 0
        if waited:
            self._words[_WAITING_OFFSET >> 3] = 0
            futex.wake(self._address + _WAITING_OFFSET, 1)
        if self.waits.pending or self.waits.given:
            self.waits.wake_pending()
        return waited
