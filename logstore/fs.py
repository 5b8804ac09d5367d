"""The only module that opens, writes, syncs, renames, maps or removes files (LMDB's own excepted).

Everything goes through a :class:`FileSystem`, so that tests can put one in its place that fails at
the k-th operation or keeps what a crash would keep. Invariants: a write is whole or raises; every
OSError becomes a typed error with the path; a name is durable only after ``sync_directory``.

A store is its directory, not its path: ``hold`` opens the directory, and each
:class:`DirectoryPath` that is made from there is reached through that descriptor, under whatever
name the directory has by then. What a store opens must be a regular file (or a directory, to lock
it), and no symbolic link; a new file is made with O_EXCL, so that nothing that somebody else put
there is written to.
Only the store's own path, and files that a user named, may be links. Knows no layouts.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat as modes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logstore.directory_path import Directory, DirectoryPath, gone
from logstore.errors import DiskFullError, FileSystemError, NotAStoreError, typed, unread
from logstore.tuples import NamedTuple

_COPY_BYTES = 1 << 20
_LOCK_EXCLUSIVE, _LOCK_SHARED = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB

_PRIVATE = "logstore-private-"  # directories of indexes that belong to one process
_CLOEXEC, _DIRECTORY = getattr(os, "O_CLOEXEC", 0), getattr(os, "O_DIRECTORY", 0)
# Opening a FIFO waits for its other end, unless it is told not to.
_STRICT = _CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def reach(path: Path) -> str:
    """A path for the system, also for those (LMDB, statx) that do not come here."""
    return path.system or os.fspath(path) if isinstance(path, DirectoryPath) else os.fspath(path)


def named(path: Path) -> Path:
    """The same path, reached by its name: for what is kept longer than its store is open."""
    return Path(os.fspath(path)) if isinstance(path, DirectoryPath) else path


def _inside(path: Path) -> bool:
    """Whether it is a part of a store that is held, where links are not followed."""
    return isinstance(path, DirectoryPath) and path.directory is not None and path.below != ""


@contextmanager
def _errors(path: str | os.PathLike[str], doing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise _missing(path, exc) from None  # callers decide what a missing file means
    except OSError as exc:
        raise typed(exc, path, doing) from exc


def _missing(path: str | os.PathLike[str], exc: OSError) -> Exception:
    """What a missing name means: StoreGoneError if that is so for all of the store's directory."""
    if isinstance(path, DirectoryPath) and path.directory is not None and path.directory.removed():
        return gone(path.directory.path)
    return FileNotFoundError(exc.errno, exc.strerror, os.fspath(path))


def _close(fd: int) -> None:
    """Close a descriptor. It is gone also after an error, and what must last was synced before."""
    with suppress(OSError):
        os.close(fd)


class FileStat(NamedTuple):
    """What tells one file from another."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int = 0
    mode: int = 0  # its kind and permissions, as in the module ``stat``
    user: int = -1  # whose it is
    links: int = 1  # names; 0: it was removed, or another file was put in its place


def _stat(at: os.stat_result) -> FileStat:
    return FileStat(
        at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_mode, at.st_uid, at.st_nlink
    )


class File:
    """One open file; positional reads and writes only."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``; shorter only at the end of the file.

        UnreadableError, with the offset of the first byte that the disk does not give back.
        """
        data = b""
        try:
            data = os.pread(self.fd, size_bytes, offset)
            while len(data) < size_bytes:
                more = os.pread(self.fd, size_bytes - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as exc:
            raise unread(exc, self.path, offset + len(data)) from exc

    def pwrite(self, data: bytes | bytearray, offset: int) -> None:
        """All of ``data`` at ``offset``; after an error some of it may be there."""
        try:
            done = os.pwrite(self.fd, data, offset)
            if done != len(data):
                view = memoryview(data)
                while done < len(view):
                    done += os.pwrite(self.fd, view[done:], offset + done)
        except OSError as exc:
            raise typed(exc, self.path, "writing") from exc

    def sync(self) -> None:
        """Data and size are durable after it; an error must never be retried and believed."""
        try:
            os.fdatasync(self.fd) if hasattr(os, "fdatasync") else os.fsync(self.fd)
        except OSError as exc:
            raise typed(exc, self.path, "syncing") from exc

    def truncate(self, size_bytes: int) -> None:
        """Cut or grow to ``size_bytes``."""
        with _errors(self.path, "cutting"):
            os.ftruncate(self.fd, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        """Set blocks aside, so that writes below ``size_bytes`` cannot run out of space."""
        with _errors(self.path, "allocating"):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, 0, size_bytes)
            else:
                os.pwrite(self.fd, bytes(size_bytes), 0)

    def stat(self) -> FileStat:
        """Device, inode and size of what is open here."""
        with _errors(self.path, "looking at"):
            return _stat(os.fstat(self.fd))

    def size_bytes(self) -> int:
        """The size now."""
        return self.stat().size_bytes

    def map(self, *, writable: bool = False) -> mmap.mmap:
        """The whole file as memory; only for files that are never cut."""
        with _errors(self.path, "mapping"):
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            return mmap.mmap(self.fd, 0, access=access)

    def try_lock(self, *, exclusive: bool) -> bool:
        """flock without waiting; False if another open file holds it."""
        try:
            fcntl.flock(self.fd, _LOCK_EXCLUSIVE if exclusive else _LOCK_SHARED)
        except BlockingIOError:
            return False
        except OSError as exc:
            raise typed(exc, self.path, "locking") from exc
        return True

    def unlock(self) -> None:
        """Give the flock back."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError as exc:
            raise typed(exc, self.path, "unlocking") from exc

    def close(self) -> None:
        """Close; safe to repeat. Its errors tell nothing that a sync has not told before."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _close(fd)
            self.path = named(self.path)

    def __del__(self) -> None:
        """Files that a cache let go of are closed by their last user."""
        if getattr(self, "fd", -1) >= 0:
            self.close()


def _refuse_odd(path: Path, mode: int) -> None:
    """FileSystemError for what is neither a regular file nor a directory."""
    if modes.S_ISREG(mode) or modes.S_ISDIR(mode):
        return
    raise FileSystemError(
        f"{path} is {_KINDS.get(modes.S_IFMT(mode), 'no regular file')}, which logstore did not "
        "make: move it away, or put the file itself in its place"
    )


_KINDS = {
    modes.S_IFLNK: "a symbolic link",
    modes.S_IFIFO: "a FIFO",
    modes.S_IFSOCK: "a socket",
    modes.S_IFCHR: "a device",
    modes.S_IFBLK: "a device",
}


def _locked_directory(path: Path) -> int | None:
    """A descriptor of a directory, locked for as long as it is open; None if another process has
    the lock, or removed the directory meanwhile.
    """
    try:
        fd = os.open(path, os.O_RDONLY | _DIRECTORY | _STRICT)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, _LOCK_EXCLUSIVE)
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    except BaseException:
        _close(fd)
        raise
    _close(fd)
    return None


class FileSystem:
    """The narrow set of operations the store needs."""

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        """Open a regular file for positional access; ``exclusive`` must create it.

        FileSystemError for a symbolic link, a FIFO and the like.
        """
        flags = (os.O_RDWR if write else os.O_RDONLY) | _STRICT
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        with _errors(path, "opening"):
            file = File(os.open(reach(path), flags, 0o666), path)
            try:
                _refuse_odd(path, os.fstat(file.fd).st_mode)
            except BaseException:
                file.close()
                raise
            return file

    def open_named(self, path: Path) -> File:
        """Open for reading what a user named: a link, or a pipe, is as good as a file."""
        with _errors(path, "opening"):
            return File(os.open(path, os.O_RDONLY | _CLOEXEC), path)

    def open_new(self, path: Path) -> File:
        """A new file for writing, under a temporary name: what a dead process left there goes.

        It is unlinked, never written to: it may be a link to another file.
        """
        self.remove(path)
        return self.open(path, write=True, exclusive=True)

    def hold(self, path: Path) -> Path:
        """The store's directory, opened; paths made from it are reached through it.

        FileNotFoundError if there is none; StoreGoneError if one that was held is another now.
        """
        if isinstance(path, DirectoryPath) and path.directory is not None and not path.below:
            if path.directory.usable():
                return path
            before: Directory | None = path.directory
        else:
            before = None
        with _errors(path, "opening"):
            try:
                flags = os.O_RDONLY | _DIRECTORY | _CLOEXEC
                found = Directory(Path(path), os.open(path, flags))
            except FileNotFoundError:
                if before is not None:
                    raise gone(before.path) from None
                raise
        if before is not None and found.identity != before.identity:
            raise gone(before.path, "was renamed or replaced")
        return DirectoryPath(path).placed(found, "")

    def check_held(self, path: Path) -> None:
        """StoreGoneError if a directory that is held was removed, or is not there any more."""
        if isinstance(path, DirectoryPath) and path.directory is not None:
            with _errors(path, "looking at"):
                path.directory.check()

    def read(self, path: Path, limit_bytes: int) -> bytes:
        """A whole small file; FileSystemError if it is larger than ``limit_bytes``."""
        return self._whole(self.open(path), limit_bytes)

    def read_named(self, path: Path, limit_bytes: int) -> bytes:
        """The same of a file that a user named: see ``open_named``."""
        return self._whole(self.open_named(path), limit_bytes)

    @staticmethod
    def _whole(file: File, limit_bytes: int) -> bytes:
        try:
            size = file.size_bytes()
            if size > limit_bytes:
                raise FileSystemError(f"{file.path} is larger than it can be: {size} bytes")
            return file.pread(size, 0)
        finally:
            file.close()

    def write_atomic(self, path: Path, data: bytes, *, private: bool = False) -> None:
        """All or nothing, durable: temporary name, sync, rename; ``private``: its owner's."""
        self._write_atomic(path, (data,), private=private)

    def copy_atomic(self, path: Path, source: File, offset: int, size_bytes: int) -> None:
        """The same of a part of another file, some of it at a time."""
        places = range(offset, end := offset + size_bytes, _COPY_BYTES)
        self._write_atomic(path, (source.pread(min(_COPY_BYTES, end - at), at) for at in places))

    def _write_atomic(self, path: Path, parts: Iterable[bytes], *, private: bool = False) -> None:
        file = self.open_new(temporary := path.with_name(path.name + ".tmp"))
        try:
            if private:
                os.fchmod(file.fd, 0o600)
            done = 0
            for part in parts:
                file.pwrite(part, done)
                done += len(part)
            file.sync()
        except DiskFullError:
            file.close()
            self.remove(temporary)  # half of it would keep its blocks
            raise
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; durable only after the directory was synced."""
        with _errors(source, "renaming"):
            os.replace(reach(source), reach(target))

    def set_mode(self, path: Path, mode: int) -> None:
        """Who may use a file that this process has made."""
        with _errors(path, "setting the mode of"):
            os.chmod(reach(path), mode)

    def remove(self, path: Path) -> None:
        """Unlink; quietly nothing if it is gone."""
        with _errors(path, "removing"):
            try:
                os.unlink(reach(path))
            except FileNotFoundError:
                return

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all it holds, no links followed; nothing if it is gone."""
        with _errors(path, "removing"):
            try:
                name = reach(path) if _inside(path) else os.fspath(path)
                if modes.S_ISDIR(os.lstat(name).st_mode):
                    import shutil

                    shutil.rmtree(name)
                else:
                    os.unlink(name)
            except FileNotFoundError:
                return

    def make_directory(self, path: Path) -> None:
        """Create with parents; fine if it exists. FileSystemError for a link in a store."""
        try:
            with _errors(path, "creating"):
                os.makedirs(reach(path), exist_ok=True)
        except FileNotFoundError as exc:  # a parent that cannot be made, as below /proc
            raise typed(exc, path, "creating") from exc
        self.refuse_link(path)

    def refuse_link(self, path: Path) -> None:
        """FileSystemError if a directory of a store is a symbolic link; fine if there is none."""
        if not _inside(path):
            return
        with _errors(path, "looking at"):
            try:
                mode = os.lstat(reach(path)).st_mode
            except FileNotFoundError:
                return
            if not modes.S_ISDIR(mode):
                _refuse_odd(path, mode)
                raise FileSystemError(
                    f"{path} is a file, where logstore keeps a directory: move it away"
                )

    def sync_directory(self, path: Path) -> None:
        """Names in ``path`` are durable after it."""
        with _errors(path, "syncing"):
            fd = os.open(reach(path), os.O_RDONLY | _DIRECTORY | _CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                _close(fd)

    def temporary_directory(self) -> Path:
        """A new private directory outside every store, held and locked; its maker removes it. Those
        whose makers were killed are removed here: nobody locks them.
        """
        import tempfile

        root = Path(tempfile.gettempdir())
        with _errors(root, "creating a directory in"):
            self._sweep(root)
            while True:
                path = Path(tempfile.mkdtemp(prefix=_PRIVATE))
                fd = _locked_directory(path)
                if fd is not None:
                    return DirectoryPath(path).placed(Directory(path, fd), "")

    @staticmethod
    def _sweep(root: Path) -> None:
        """What cannot be removed, or is another user's, is none of our business."""
        import shutil

        for name in [name for name in os.listdir(root) if name.startswith(_PRIVATE)]:
            fd = None
            with suppress(OSError):
                fd = _locked_directory(root / name)
                if fd is not None and os.fstat(fd).st_uid == os.geteuid():
                    shutil.rmtree(root / name)
            if fd is not None:
                _close(fd)

    def names(self, path: Path) -> list[str]:
        """Sorted names in a directory; empty if there is none."""
        try:
            with _errors(path, "listing"):
                self.refuse_link(path)
                try:
                    return sorted(os.listdir(reach(path)))
                except NotADirectoryError:
                    raise NotAStoreError(f"{path} is not a directory") from None
        except FileNotFoundError:
            return []

    def other_names(self, path: Path) -> set[str]:
        """Names in a directory of what is no directory itself."""
        with _errors(path, "listing"), os.scandir(reach(path)) as entries:
            return {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}

    def exists(self, path: Path) -> bool:
        """Whether something has that name."""
        with suppress(FileNotFoundError), _errors(path, "looking at"), suppress(NotADirectoryError):
            self._look(path)
            return True
        return False

    @staticmethod
    def _look(path: Path) -> os.stat_result:
        return os.lstat(reach(path)) if _inside(path) else os.stat(reach(path))

    def stat(self, path: Path) -> FileStat:
        """Device, inode and size by name; FileNotFoundError if there is none."""
        with _errors(path, "looking at"):
            return _stat(self._look(path))

    def size_bytes(self, path: Path) -> int:
        """The size of a file; 0 if there is none."""
        try:
            return self.stat(path).size_bytes
        except FileNotFoundError:
            return 0

    def refuse_odd(self, path: Path) -> None:
        """For what others open: FileSystemError for a link, a FIFO and the like."""
        with _errors(path, "looking at"):
            _refuse_odd(path, os.lstat(reach(path)).st_mode)

    def tree_bytes(self, path: Path) -> int:
        """Bytes that the files below ``path`` occupy on the disk."""
        total = 0
        for folder, _, files in os.walk(reach(path)):
            for name in files:
                with _errors(path, "looking at"):
                    try:
                        total += os.lstat(os.path.join(folder, name)).st_blocks * 512
                    except FileNotFoundError:
                        continue  # removed while we walked
        return total

    def writable(self, path: Path) -> bool:
        """Whether this process may create names in a directory."""
        return os.access(reach(path), os.W_OK)


LOCAL = FileSystem()
