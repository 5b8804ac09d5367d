"""The one tree of errors.

Every error that this package raises on purpose is a :class:`Error`, says what to do, and carries
``stream``, ``segment`` and ``offset`` where it has them. The tree::

    Error
    |-- UsageError (ValueError)            the call cannot be right; nothing was changed
    |   |-- InvalidIDError                 malformed, 0-0, or past 2^64-1
    |   |-- IDOrderError                   not above the stream's last ID
    |   |-- InvalidEntryError              no fields
    |   |-- EntryTypeError (TypeError)     a value that is neither str, bytes, int nor float
    |   |-- SchemaError                    a value or field that the stream's schema does not know
    |   |-- TooLargeError                  a field, entry or name over its limit
    |   |-- InvalidPayloadError            a DUMP payload or RDB file that cannot be taken in
    |   `-- OptionError                    options out of range or in conflict
    |-- StreamNotFoundError (KeyError)     a stream that must exist does not
    |-- EntryNotFoundError (KeyError)      an entry that must exist does not
    |-- StreamExistsError                  the stream exists already (BUSYKEY)
    |-- GroupNotFoundError (KeyError)      a stream or group that must exist does not (NOGROUP)
    |-- GroupExistsError                   the group exists already (BUSYGROUP)
    |-- NotOwnerError                      a fenced ack of an entry that is somebody else's now
    |-- LastIDConflictError                the last ID is not the one that the caller saw
    |-- JobFailedError                     a job was given up
    |-- JobNotDoneError (TimeoutError)     a job has no result in time
    |-- StoreError                         the store as a whole cannot be used so
    |   |-- NotAStoreError                 the directory holds no store
    |   |-- FormatVersionError             written by a newer logstore
    |   |-- FileSystemError (OSError)      network file system, no permission, I/O error
    |   |   |-- DiskFullError              no space left; deletes and compaction still work
    |   |   `-- UnreadableError            an unreadable sector; a CorruptFrameError, too
    |   |-- ReadOnlyError                  a write on a store opened with readonly=True
    |   |-- ClosedError                    the store was closed
    |   |-- LockTimeoutError (TimeoutError)  another process kept the writer lock; names its pid
    |   |-- StoreGoneError                 its directory was removed or replaced while it was open
    |   |-- StoreInUseError                held by processes that cannot share it with this one
    |   |-- ReentryError                   called from a signal handler or finaliser inside a call
    |   |-- ErasureIncompleteError         deleted, but bytes of it are still there: erase again
    |   `-- StoreFailedError               a sync failed; nothing more is acknowledged until recover
    |-- CorruptionError                    stored bytes are not what was written
    |   |-- CorruptFrameError
    |   |-- CorruptNodeError
    |   `-- DamagedStoreError              damage in the middle of the log
    |-- CommittedError                     the commit happened; what came after it failed
    |   `-- CommittedInterrupt (KeyboardInterrupt)
    |-- InputLineError (ValueError)        a line of an import cannot be read
    |-- PeerError                          a server of Redis or Valkey is not there, or refuses
    `-- SnapshotExpiredError               a pinned snapshot was given back; load again

It imports nothing of ours.
"""

from __future__ import annotations

import errno
import os
from typing import Any

SHOWN_MAX = 200


def shown(value: object) -> str:
    """What was given, for a message: its repr, cut where it is long. It never raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  an int of 5000 digits, an object with a broken __repr__
        return f"what is a {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class Error(Exception):
    """Base of every error of logstore."""

    # What the peers say, where the message cannot hold the names as they are.
    peer_text: bytes | None = None

    def __init__(
        self,
        message: str,
        *,
        stream: bytes | None = None,
        segment: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stream = stream
        self.segment = segment
        self.offset = offset

    def __str__(self) -> str:
        where: list[str] = []
        if self.stream is not None:
            where.append(f"stream {self.stream.decode('utf-8', 'backslashreplace')!r}")
        if self.segment is not None:
            where.append(f"segment {self.segment}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        return f"{self.message} ({', '.join(where)})" if where else self.message


class UsageError(Error, ValueError):
    """The call cannot be right; nothing was changed."""


class InvalidIDError(UsageError):
    """An ID that is malformed, 0-0 where that is refused, or past 2^64-1."""


class IDOrderError(UsageError):
    """An ID that is not above the stream's last ID."""


class InvalidEntryError(UsageError):
    """An entry without fields."""


class EntryTypeError(UsageError, TypeError):
    """A field or value that is neither str, bytes, int nor float."""


class SchemaError(UsageError):
    """A value, a field or a stored entry that does not fit the schema of its stream."""


class TooLargeError(UsageError):
    """A field, an entry or a name over its limit."""


class InvalidPayloadError(UsageError):
    """A DUMP payload or RDB file that is damaged, forged, or of a kind that is not known."""


class OptionError(UsageError):
    """Options that are out of range or contradict each other."""


class StreamNotFoundError(Error, KeyError):
    """A stream that must exist does not."""

    __str__ = Error.__str__


class EntryNotFoundError(Error, KeyError):
    """An entry that must exist does not."""

    __str__ = Error.__str__


class StreamExistsError(Error):
    """The stream exists already, and was not to be replaced (the peers' BUSYKEY)."""


class GroupNotFoundError(Error, KeyError):
    """A stream or a consumer group that must exist does not (the peers' NOGROUP)."""

    __str__ = Error.__str__


class GroupExistsError(Error):
    """The consumer group exists already (the peers' BUSYGROUP)."""


class NotOwnerError(Error):
    """An ack inside a transaction, of an entry that is no longer pending as it was handed out."""


class LastIDConflictError(Error):
    """The stream's last ID is not the one that the caller saw; nothing was added.

    It carries ``stream``, and the IDs ``expected`` and ``actual``, which is 0-0 without a stream.
    """

    def __init__(
        self,
        message: str,
        *,
        stream: bytes | None = None,
        expected: tuple[int, int] = (0, 0),
        actual: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(message, stream=stream)
        self.expected = expected
        self.actual = actual


class JobFailedError(Error):
    """A job was given up; it carries the ``job``'s ID and the ``error``, as text."""

    def __init__(self, message: str, *, job: str = "", error: str = "") -> None:
        super().__init__(message)
        self.job = job
        self.error = error


class JobNotDoneError(Error, TimeoutError):
    """A job has no result in time."""


class StoreError(Error):
    """The store as a whole cannot be used like this."""


class NotAStoreError(StoreError):
    """The directory holds no store."""


class FormatVersionError(StoreError):
    """The store was written by a newer logstore."""


class FileSystemError(StoreError, OSError):
    """The file system refused: network file system, permission, I/O error."""

    __str__ = Error.__str__


class DiskFullError(FileSystemError):
    """No space is left; reads work, deletes and compaction give space back."""


class ReadOnlyError(StoreError):
    """A write on a store that was opened with ``readonly=True``."""


class ClosedError(StoreError):
    """The store was closed."""


class LockTimeoutError(StoreError, TimeoutError):
    """Another process kept the writer lock longer than ``lock_timeout``."""

    __str__ = Error.__str__

    def __init__(self, message: str, *, owner_pid: int | None = None) -> None:
        super().__init__(message)
        self.owner_pid = owner_pid


class StoreGoneError(StoreError):
    """The store's directory was removed or replaced; what is there now is not this store."""


class StoreInUseError(StoreError):
    """The store is held by processes that cannot share it with this one."""


class ReentryError(StoreError):
    """The store was called from a signal handler or a finaliser inside one of its own calls."""


class StoreFailedError(StoreError):
    """A sync failed: nothing more is acknowledged until the store was recovered."""


class ErasureIncompleteError(StoreError):
    """The entries are deleted, but bytes of them are still in the store: erase again."""


class CorruptionError(Error):
    """Stored bytes are not what was written."""


class CorruptFrameError(CorruptionError):
    """A frame's checksum, length, kind or place is wrong."""


class CorruptNodeError(CorruptionError):
    """A macro node's bytes break the rules of its encoding."""


class UnreadableError(CorruptFrameError, FileSystemError):
    """The disk does not give bytes back that were written: an unreadable sector.

    ``offset`` is where they begin in the file. It is an error of the system, with its ``errno`` and
    ``filename``, and what is read around damage reads around it.
    """

    __str__ = Error.__str__


class DamagedStoreError(CorruptionError):
    """The log is damaged before its durable end."""


class CommittedError(Error):
    """The commit is in the log and counts; a step after it failed. Do not repeat the call."""


class CommittedInterrupt(CommittedError, KeyboardInterrupt):  # noqa: N818
    """Ctrl-C arrived after the commit was in the log: it counts."""


class InputLineError(Error, ValueError):
    """A line of an import cannot be read; or a row, where ``unit`` says so."""

    def __init__(self, message: str, *, line_number: int, unit: str = "line") -> None:
        super().__init__(f"{unit} {line_number}: {message}")
        self.line_number = line_number
        self.unit = unit

    def __reduce__(self) -> Any:  # the message has the number already
        return (_input_line_error, (self.message, self.line_number, self.unit))


def _input_line_error(message: str, line_number: int, unit: str) -> InputLineError:
    """One that was pickled, as processes hand them over."""
    found = InputLineError("", line_number=line_number, unit=unit)
    found.message, found.args = message, (message,)
    return found


class PeerError(Error):
    """A server of Redis or Valkey cannot be reached, refuses, or answers what it cannot."""


class SnapshotExpiredError(Error):
    """A pinned snapshot was given back: load again."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What disks, and file systems with checksums, say of bytes that they cannot give back.
_UNREADABLE = tuple(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EUCLEAN", "ENODATA", "EILSEQ", "EREMOTEIO")
    if hasattr(errno, name)
)


def typed(exc: OSError, path: str | os.PathLike[str], doing: str) -> FileSystemError:
    """The typed error for an OSError, saying what to do; with its ``errno`` and ``filename``."""
    what = exc.strerror or str(exc)
    name = os.fspath(path)
    made = FileSystemError(
        f"{doing} {name} failed: {what}; look into the system's log for errors of the disk, and "
        "run 'logstore check' when it is sound again"
    )
    if exc.errno in FULL:
        made = DiskFullError(
            f"no space left while {doing} {name}: {what}; delete or trim entries and compact, "
            "or make room on the disk"
        )
    elif exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        made = FileSystemError(
            f"no permission while {doing} {name}: {what}; fix the permissions, "
            "or open with readonly=True"
        )
    elif exc.errno in (errno.EMFILE, errno.ENFILE):
        made = FileSystemError(
            f"too many open files while {doing} {name}: raise the limit with ulimit -n"
        )
    elif exc.errno == errno.ELOOP:
        made = FileSystemError(
            f"{doing} {name} failed: it is a symbolic link, which logstore did not make and does "
            "not follow: move it away, or put the file itself in its place"
        )
    elif exc.errno in (errno.EEXIST, errno.ENOTDIR):
        made = FileSystemError(f"{doing} {name} failed: {what}; give a directory, not a file")
    made.errno, made.filename = exc.errno, name
    return made


def unread(exc: OSError, path: str | os.PathLike[str], offset: int) -> FileSystemError:
    """The typed error where a file could not be read from an offset on."""
    if exc.errno not in _UNREADABLE:
        return typed(exc, path, "reading")
    name = os.fspath(path)
    made = UnreadableError(
        f"the disk does not give back {name} from byte {offset} on: {exc.strerror or exc}; look "
        "into the system's log, and copy what is left from a failing disk; of a store, "
        "'logstore check' says what is affected, 'logstore recover --salvage' takes out the rest",
        offset=offset,
    )
    made.errno, made.filename = exc.errno, name
    return made
