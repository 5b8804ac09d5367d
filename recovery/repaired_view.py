"""A damaged store as one that can be read: what would keep all of it from being opened is put right
beside it.

A segment whose header is damaged is given another one, from what its frames and its neighbours say;
a damaged active segment is given an end and a successor; a STORE that is damaged or lost is made
anew from the headers of segments. What holds no frame of this store is left out.

Invariants: nothing below the store's directory is written; all else is read as it lies there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.errors import CorruptFrameError, DamagedStoreError, Error, FormatVersionError
from logstore.fs import LOCAL, File, FileStat, FileSystem
from logstore.log import chain, log_reader, segment, storefile
from logstore.log import file_names as names
from logstore.log.log_reader import LogFrame
from logstore.log.segment import SegmentHead
from logstore.log.segment_writer import crc_seed
from logstore.options import StoreLimits
from logstore.recovery.report import Damage


def last_commit(file: File, seed: int, number: int, start: int, end: int) -> tuple[int, int]:
    """Where the last whole commit between two offsets of segment ``number`` ends, and its number,
    past all that cannot be read; ``start`` and 0 if there is none."""
    at, commit = start, 0
    for frame in log_reader.next_valid(file, seed, number, start, end, bodies=False):
        if frame.last:
            at, commit = frame.end_offset, frame.commit
    return at, commit


def uuid_of_segments(fs: FileSystem, store: Path) -> bytes | None:
    """The store's identity, as most of its segments have it; None if no header is whole."""
    found: list[bytes] = []
    for number in names.segments(fs, store):
        file = fs.open(names.segment(store, number))
        try:
            uuid = file.pread(fmt.SEGMENT_HEAD_BYTES, 0)[16:32]
            found.append(segment.read_head(file, number, uuid).uuid)
        except CorruptFrameError:
            continue
        finally:
            file.close()
    return max(found, key=found.count, default=None)


class _ReheadedSegment(File):
    """A segment with another header than the one in the file."""

    def __init__(self, below: File, head: bytes) -> None:
        super().__init__(below.fd, below.path)
        below.fd = -1  # it is closed by this one
        self._head = head

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As of a file that begins with the header."""
        data = super().pread(size_bytes, offset)
        front = self._head[offset : offset + size_bytes]
        return front + data[len(front) :] if front else data


class RepairedView(FileSystem):
    """A file system in which some files are others."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self.heads: dict[Path, bytes] = {}
        self.moved: dict[Path, Path] = {}
        self.hidden: set[Path] = set()

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        """Open what stands for that name."""
        if path in self.hidden:
            raise FileNotFoundError(path)
        real = self.moved.get(path, path)
        file = self._below.open(real, write=write, create=create, exclusive=exclusive)
        head = self.heads.get(path)
        return file if head is None else _ReheadedSegment(file, head)

    def names(self, path: Path) -> list[str]:
        """Names in a directory, with those that were added."""
        here = {each.name for each in self.moved if each.parent == path}
        gone = {each.name for each in self.hidden if each.parent == path}
        return sorted({*self._below.names(path), *here} - gone)

    def exists(self, path: Path) -> bool:
        """Whether something has that name."""
        return path not in self.hidden and self._below.exists(self.moved.get(path, path))

    def stat(self, path: Path) -> FileStat:
        """Device, inode and size of what stands for that name."""
        if path in self.hidden:
            raise FileNotFoundError(path)
        return self._below.stat(self.moved.get(path, path))


class Repaired:
    """A store with its overlay, and what had to be put right. ``home`` is a private directory."""

    def __init__(self, fs: FileSystem, path: Path, home: Path) -> None:
        self._path, self._home = path, home
        self.fs = RepairedView(fs)
        self.damage: list[Damage] = []
        self.content = self._store()
        self._uuid, self._seed = self.content.uuid, crc_seed(self.content.uuid)
        self._heads()
        self._active()

    def _store(self) -> storefile.StoreFile:
        try:
            return storefile.read(self.fs, self._path)
        except FormatVersionError:
            raise
        except Error as exc:
            uuid = uuid_of_segments(self.fs, self._path)
            if uuid is None:
                raise
            self.damage.append(Damage(0, 0, 0, f"{exc.message}; its limits are the defaults now"))
        content = storefile.StoreFile(uuid, StoreLimits(), 0)
        made = self._home / names.STORE
        LOCAL.write_atomic(made, storefile.pack(content))
        self.fs.moved[self._path / names.STORE] = made
        return content

    # -- headers --------------------------------------------------------------------------------
    def _heads(self) -> None:
        before: tuple[int, int] | None = None  # the main segment before, and where it ends
        for number in names.segments(self.fs, self._path):
            path = names.segment(self._path, number)
            file = self.fs.open(path)
            try:
                head = segment.read_head(file, number, self._uuid)
            except CorruptFrameError as exc:
                found = self._made(file, number, before)
                size = file.size_bytes()
                if found is None:
                    self.fs.hidden.add(path)
                    self.damage.append(Damage(number, 0, size, f"{exc.message}; nor a frame"))
                    continue
                head = found
                self.fs.heads[path] = segment.pack_head(head)
                self.damage.append(
                    Damage(number, 0, min(size, fmt.SEGMENT_HEAD_BYTES), exc.message)
                )
            finally:
                file.close()
            if head.role == fmt.Role.MAIN:
                before = (number, 0)
        if not names.segments(self.fs, self._path):
            raise DamagedStoreError("there is no segment left in the log: restore a backup")

    def _frames(self, file: File, number: int, start: int) -> Iterator[LogFrame]:
        return log_reader.next_valid(
            file, self._seed, number, start, file.size_bytes(), bodies=False
        )

    def _made(self, file: File, number: int, before: tuple[int, int] | None) -> SegmentHead | None:
        """A header for a segment that has frames of this store; None if it has none."""
        first = next(self._frames(file, number, fmt.SEGMENT_HEAD_BYTES), None)
        if first is None:
            return None
        if not first.commit:
            return SegmentHead(fmt.Role.COMPACTED, number, self._uuid, 0, 0, 0)
        end, commit = 0, 0
        if before is not None:
            end, commit = self._end(before[0])
        return SegmentHead(fmt.Role.MAIN, number, self._uuid, end, commit, 0)

    def _end(self, number: int) -> tuple[int, int]:
        """Where the last whole commit of a segment ends (position), and its number."""
        file = self.fs.open(names.segment(self._path, number))
        try:
            end, commit = last_commit(
                file, self._seed, number, fmt.SEGMENT_HEAD_BYTES, file.size_bytes()
            )
        finally:
            file.close()
        return fmt.position(number, end), commit

    # -- the active segment -----------------------------------------------------------------------
    def _active(self) -> None:
        """If it is damaged in the middle, what stands behind counts as well: a segment behind it
        says where it ends, as ``recover`` would make one."""
        links = chain.main_links(self.fs, self._path, self._uuid)
        if not links:
            raise DamagedStoreError("there is no main segment left in the log: restore a backup")
        last = links[-1]
        if self._whole(last):
            return
        end, commit = self._end(last.number)
        number = names.segments(self.fs, self._path)[-1] + 1
        head = SegmentHead(fmt.Role.MAIN, number, self._uuid, end, commit, last.created_ms)
        path = names.segment(self._path, number)
        made = self._home / path.name
        LOCAL.write_atomic(made, segment.pack_head(head))
        self.fs.moved[path] = made

    def _whole(self, link: chain.Link) -> bool:
        """Whether nothing valid stands behind something bad."""
        good = link.start_offset
        file = self.fs.open(names.segment(self._path, link.number))
        try:
            scanned = log_reader.scan(file, self._seed, link.number, good, link.end_offset)
            for commit in log_reader.commits(scanned, None):
                good = fmt.offset_of(commit.end)
        except CorruptFrameError:
            behind = self._frames(file, link.number, good)
            return not any(found.last for found in behind)
        finally:
            file.close()
        return True
