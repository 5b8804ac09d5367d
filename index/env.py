"""Generations of the index: building, opening, copying and closing one LMDB environment.

A copy row by row (``row_pieces``, ``put_piece``) has no byte but those of the rows, in the smallest
file. LMDB's own copy takes
pages as they are: half full where rows came in another order, and with bytes of what was deleted
behind those that count.

Invariants: a generation is built under a temporary name and renamed; a directory without data.mdb
is never opened; all databases are opened in one write transaction (opening one alone would wait for
the writer lock while holding the GIL); nothing else in this process ever opens lock.mdb. What
every commit writes (meta, records, open nodes) shares the main database: each named one that is
changed would cost a commit two more pages.

Invariants of a copy: all rows are of one snapshot; each goes over as it is stored, with its
checksum, so what is damaged stays damaged and is found where it is read; the target is new, and has
all databases.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from logstore import errors, mapped
from logstore.errors import FULL, CorruptionError, DiskFullError, Error, FileSystemError
from logstore.features.feature_list import FEATURES
from logstore.fs import LOCAL, FileSystem, named, reach
from logstore.index import keys
from logstore.row_seal import unseal

MAP_BYTES = 1 << 40
READERS_MAX = 4096
LOST_PAGES = (
    "pages of the index cannot be read: its file was cut, or the disk does not give them back; try "
    "again, it is built anew from the log"
)
_READER_BYTES, _LOCK_LEAST_BYTES = 64, 16384
# Beside the main one: of the core, then one of each feature.
DATABASES = (
    "names",
    "nodes",
    "segments",
    "groups",
    *(feature.database for feature in FEATURES),
)


_DAMAGED = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.NotFoundError,
    lmdb.IncompatibleError,
)
LostReader = lmdb.BadRslotError  # this process's slot among the readers is another's now
_STALE = (lmdb.BadDbiError, lmdb.BadTxnError)  # what it read does not fit what it knows
GaveUp = lmdb.PanicError  # a meta page could not be written: nothing goes on in this environment
# LMDB gives the system's errors as text alone.
_FULL = tuple(os.strerror(code) for code in FULL)
# What it says when a write of its pages was short: mostly the disk is full.
_SHORT = f"mdb_txn_commit: {os.strerror(errno.EIO)}"
_GONE = os.strerror(errno.ENOENT)
_NO_TABLE = "no reader locks"
_REFUSED = tuple(
    os.strerror(code)
    for code in (
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EAGAIN,
    )
)


def typed(exc: BaseException) -> BaseException:
    """The typed error for one of LMDB's; anything else as it is."""
    if isinstance(exc, Error) or not isinstance(exc, lmdb.Error):
        return exc
    if isinstance(exc, lmdb.DiskError | lmdb.MapFullError) or str(exc).endswith(_FULL):
        made: Error = DiskFullError(
            f"no space left while writing the index: {exc}; delete or trim entries and compact, "
            "or make room on the disk"
        )
    elif str(exc).endswith(_SHORT):
        made = DiskFullError(
            f"no space left, or an error of the disk, while writing the index: {exc}; make room on "
            "it, and look into the system's log"
        )
    elif isinstance(exc, _DAMAGED):
        made = CorruptionError(
            f"the index is damaged: {exc}; close the store, delete its index directory, and open "
            "it again; it is rebuilt from the log"
        )
    elif isinstance(exc, lmdb.ReadersFullError):
        made = FileSystemError(
            f"the index cannot be read: {exc}; {READERS_MAX} threads and processes read it at "
            "once: let some of them end, then try again"
        )
    else:
        made = FileSystemError(
            f"the index cannot be used: {exc}; look into the system's log for errors of the disk, "
            "close the store in every process and open it again"
        )
    made.__cause__ = exc
    return made


def is_doubtful(exc: BaseException) -> bool:
    """Whether an error says that the index is damaged: it looks the same to a reader that lost its
    slot, for others wrote over the pages that it was reading.
    """
    return isinstance(exc, _DAMAGED + _STALE) or type(exc) is CorruptionError


def _not_opened(exc: lmdb.Error, path: Path) -> Exception:
    """The typed error where LMDB does not open: the system refused, or it is no index any more."""
    if isinstance(exc, lmdb.DiskError | lmdb.ReadersFullError | lmdb.MapFullError):
        refusal = typed(exc)
        assert isinstance(refusal, Error)
        return refusal
    if str(exc).endswith(os.strerror(errno.ENOMEM)):
        return FileSystemError(
            f"the index in {path} cannot be opened: {exc}; it takes {MAP_BYTES >> 40} TiB of "
            "addresses, and no memory by that: lift the limit of addresses of this process (ulimit "
            "-v; of Spark's planner: PYSPARK_PLANNER_MEMORY_MB)"
        )
    if str(exc).endswith(_FULL + _REFUSED):
        return FileSystemError(
            f"the index in {path} cannot be opened: {exc}; see to its permissions, ulimit -n, and "
            "the system's log"
        )
    return CorruptionError(
        f"the index in {path} cannot be opened: {exc}; delete this directory, and open the store "
        "again: it is rebuilt from the log"
    )


@contextmanager
def translated() -> Iterator[None]:
    """Errors of LMDB leave as typed ones."""
    try:
        yield
    except lmdb.Error as exc:
        raise typed(exc) from exc


class Generation:
    """One open generation: the environment and its databases."""

    def __init__(
        self, path: Path, number: int, guard: mapped.Guard, env: Any, databases: dict[str, Any]
    ) -> None:
        self._guard = guard  # first: it is freed before LMDB unmaps what it looks after
        self.path = path
        self.number = number
        self.env = env
        self.main = databases["main"]
        self.names = databases["names"]
        self.nodes = databases["nodes"]
        self.segments = databases["segments"]
        self.groups = databases["groups"]
        self.databases = databases
        self.database_names = {handle: name for name, handle in databases.items()}
        # ``Wake.readers_changed`` when it was last seen that this process is registered.
        self.registered_at = -1

    @property
    def lost(self) -> bool:
        """Whether pages of it read as zeros now, because they cannot be read."""
        return self._guard.lost

    def sync(self) -> None:
        """Force the index to disk; only a clean close needs it."""
        self.env.sync(True)

    def copy_used(self, path: Path) -> None:
        """Copy what is in use into an empty directory, leaving free pages out.

        FileNotFoundError if that directory was deleted meanwhile.
        """
        try:
            self.env.copy(reach(path), compact=True)
        except lmdb.Error as exc:
            if str(exc).endswith(_GONE):
                raise FileNotFoundError(path) from exc
            raise

    def check_readers(self) -> int:
        """Free the reader slots of dead processes, how many; 0 if it was closed meanwhile."""
        with suppress(lmdb.Error):
            return int(self.env.reader_check())
        return 0

    def is_registered(self, txn: Any) -> bool:
        """Whether a reading transaction stands in the table of readers, so that nobody writes over
        the pages that it sees; always for an environment without locks.
        """
        table = str(self.env.readers())
        rows = [row.split() for row in table.splitlines()]
        wanted = str(os.getpid()), str(txn.id())
        return _NO_TABLE in table or any(row[:1] + row[2:3] == [*wanted] for row in rows)

    def given_up(self) -> bool:
        """Whether LMDB refuses everything until this environment is closed (``reopen``)."""
        try:
            self.env.begin().abort()
        except lmdb.Error as exc:
            return isinstance(exc, GaveUp)
        return False

    def close(self) -> None:
        """Close the environment."""
        self._guard.close()
        self.env.close()
        self.path = named(self.path)

    def leave(self, txn: Any, gate: Any, *, written: bool) -> None:
        """End a write transaction, and take back what was written in it. May be repeated.

        The binding aborts one only at a moment at which no other thread of the process is inside
        LMDB. Beside threads that read without rest such a moment does not come for seconds, and
        whoever aborts has LOCK. So one in which nothing was written is committed, which writes
        nothing and waits for nobody; and before another one is aborted, the gate keeps readers out.
        """
        if not written:
            try:
                txn.commit()
            except lmdb.Error:  # it is over already, or LMDB has given it up: that waits for nobody
                txn.abort()
            return
        try:
            gate.shut()
            txn.abort()
        finally:
            try:
                gate.reopen()
            except KeyboardInterrupt:  # a gate that stays shut would keep LOCK from all others
                gate.reopen()
                raise

    def entries(self) -> dict[str, int]:
        """Rows by what they are."""
        with self.env.begin() as txn:
            rows = {name: int(txn.stat(self.databases[name])["entries"]) for name in DATABASES}
            with txn.cursor(db=self.main) as cursor:
                there = cursor.set_range(keys.STREAM_PREFIX)  # else it would begin at the front
                kinds = [key[-1] for key in cursor.iternext(values=False)] if there else []
        opens = sum(kinds)
        return rows | {"open": opens, "streams": len(kinds) - opens}

    def live_bytes(self) -> int:
        """Bytes of pages that hold rows; the rest is free for reuse, but stays in the file."""
        with self.env.begin() as txn:
            pages = 0
            for name in ("main", *DATABASES):
                stat = txn.stat(self.databases[name])
                pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(pages * self.env.stat()["psize"])

    def used_bytes(self) -> int:
        """Bytes of pages in use; the file may be larger, it never shrinks by itself."""
        info, stat = self.env.info(), self.env.stat()
        return int((info["last_pgno"] + 1) * stat["psize"])


def open_generation(fs: FileSystem, path: Path, number: int, *, build: bool = False) -> Generation:
    """Open the generation in ``path``; ``build`` makes a new one.

    FileNotFoundError without data.mdb; CorruptionError if LMDB refuses it.
    """
    if build:
        fs.remove_tree(path)
        fs.make_directory(path)
        _allocate_lock(fs, path / "lock.mdb")
    else:
        _refuse_odd(fs, path)

    def databases(env: Any) -> dict[str, Any]:
        with env.begin(write=True) as txn:
            found = {"main": env.open_db(None, txn=txn)}
            for name in DATABASES:
                found[name] = env.open_db(name.encode(), txn=txn, create=build)
        env.reader_check()
        return found

    try:
        return _opened(
            path,
            number,
            databases,
            max_readers=READERS_MAX,
            sync=False,
            metasync=False,
            writemap=False,
            max_spare_txns=2,
            create=build,
        )
    except lmdb.Error as exc:
        raise _not_opened(exc, path) from exc
    except OSError as exc:  # LMDB makes the directory itself
        raise errors.typed(exc, path, "opening") from exc


def _opened(
    path: Path, number: int, databases: Callable[[Any], dict[str, Any]], **options: Any
) -> Generation:
    """A generation as LMDB opens it with ``options``; ``databases`` opens these in it."""
    env, guard = None, mapped.nothing()
    try:
        env = lmdb.open(reach(path), map_size=MAP_BYTES, max_dbs=len(DATABASES), **options)
        # What LMDB has mapped of the index is looked after.
        guard = mapped.guard_file(LOCAL.stat(path / "data.mdb").inode, MAP_BYTES)
        return Generation(path, number, guard, env, databases(env))
    except BaseException:
        if env is not None:
            guard.close()
            env.close()  # or this process could not open it again
        raise


def _allocate_lock(fs: FileSystem, path: Path) -> None:
    """LMDB maps its table of readers, and a page of it that the disk has no room for would end the
    process (SIGBUS). It is allocated before LMDB has it; on a full disk, for 250 readers.
    """
    file = fs.open(path, write=True, exclusive=True)
    try:
        try:
            file.allocate(READERS_MAX * _READER_BYTES)
        except DiskFullError:
            file.allocate(_LOCK_LEAST_BYTES)
    finally:
        file.close()


def _refuse_odd(fs: FileSystem, path: Path) -> None:
    """Refuse files that are not regular: LMDB would follow links, and wait for the other end of a
    FIFO.

    FileNotFoundError without data.mdb; CorruptionError, so that another generation is built.
    """
    try:
        fs.refuse_odd(path / "data.mdb")
        with suppress(FileNotFoundError):
            fs.refuse_odd(path / "lock.mdb")
    except FileSystemError as exc:
        raise CorruptionError(f"the index cannot be used: {exc.message}") from None


def open_untouched(path: Path, number: int) -> Generation:
    """Open a generation that nobody uses, reading only, without locks, leaving no trace.

    FileNotFoundError if it was made by an older logstore and lacks a database.
    """
    _refuse_odd(LOCAL, path)

    def databases(env: Any) -> dict[str, Any]:
        # Each in a transaction of its own: a read transaction takes handles opened in it along.
        found = {"main": env.open_db(None)}
        for name in DATABASES:
            found[name] = env.open_db(name.encode(), create=False)
        return found

    try:
        return _opened(
            path, number, databases, readonly=True, lock=False, create=False, max_spare_txns=0
        )
    except lmdb.NotFoundError as exc:
        why = f"the index in {path} is of an older format: {exc}"
        raise FileNotFoundError(why) from exc
    except lmdb.Error as exc:
        raise _not_opened(exc, path) from exc


PIECE_BYTES = 128 << 10  # in half a millisecond
_MAIN = "main"
_OF_LMDB = frozenset(name.encode() for name in DATABASES)  # its own rows of the main database
RowPiece: TypeAlias = tuple[str, list[tuple[bytes, bytes]]]  # rows of a database, in their order


def row_pieces(source: Generation, reading: Any) -> Generator[RowPiece, None, None]:
    """All that ``reading``, a transaction of ``source``, sees, but for LMDB's own rows."""
    for name in (_MAIN, *DATABASES):
        some: list[tuple[bytes, bytes]] = []
        size = 0
        with reading.cursor(db=source.databases[name]) as cursor:
            for row in cursor.iternext():
                if name == _MAIN and row[0] in _OF_LMDB:
                    continue
                some.append(row)
                size += len(row[0]) + len(row[1])
                if size >= PIECE_BYTES:
                    yield name, some
                    some, size = [], 0
        if some:
            yield name, some


def put_piece(target: Generation, writing: Any, piece: RowPiece) -> None:
    """Store them behind those before. LMDB's own rows of the main database are there: others go
    before and behind them."""
    name, rows = piece
    with writing.cursor(db=target.databases[name]) as cursor:
        cursor.putmulti(rows, append=name != _MAIN)


def verify_rows(own: Generation) -> int:
    """Check the CRC of each row; how many there are. CorruptionError at the first that is wrong."""
    count = 0
    with own.env.begin() as txn:
        for name in ("main", *DATABASES):
            with txn.cursor(db=own.databases[name]) as cursor:
                for key, data in cursor:
                    if name == "main" and key[:1] not in (keys.META_KEY, keys.STREAM_PREFIX):
                        continue  # of a named database: LMDB's own
                    unseal(key, data)
                    count += 1
    return count
