"""Opening a store: options, checked before anything is touched.

Invariants: a store of other limits than those that were asked for is closed again. It knows no
logic of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, overload

from logstore.api import arguments
from logstore.api.opening import FILES, OpenStore
from logstore.api.store import Store
from logstore.clock import Clock, checked
from logstore.errors import Error, OptionError
from logstore.log import file_names
from logstore.options import COMPACT_RATE_BYTES_S, StoreLimits, StoreOptions, Sync, seconds
from logstore.uri_path import is_uri, path_of

# Of a store, fixed when it is made.
LIMITS: Final = ("node_max_bytes", "node_max_entries", "segment_bytes")
JOIN_WAIT_S = 2.0  # for a commit of others, before a look at the store is one from outside

if TYPE_CHECKING:
    from logstore.engine.groups.dead_letter import DeadLettered


class OpenOptions(TypedDict, total=False):
    """Options of a store that is opened, as ``logstore.open`` describes them."""

    sync: Sync
    readonly: bool
    create: bool | Literal["auto"]
    lock_timeout: float | timedelta
    background: bool
    clock: Clock | None
    node_max_bytes: int | None
    node_max_entries: int | None
    segment_bytes: int | None
    compact_rate: float | None
    low_space_bytes: int | None


@overload
def open_store(
    path: str | os.PathLike[str], *, encoding: None = ..., **options: Unpack[OpenOptions]
) -> Store[bytes]: ...
@overload
def open_store(
    path: str | os.PathLike[str], *, encoding: str, **options: Unpack[OpenOptions]
) -> Store[str]: ...
def open_store(
    path: str | os.PathLike[str], *, encoding: str | None = None, **options: Unpack[OpenOptions]
) -> Store[Any]:
    """Open a store, making it if it is missing and ``create`` allows.

    Args:
        path: the store's directory; with ``readonly`` also the URI that one was shipped to.
        encoding: None gives bytes, a codec's name gives str.
        sync: "always", "everysec" or "os": what a crash of the machine may lose.
        readonly: write nothing, and need no permission to.
        create: whether to make a store that is not there.
        lock_timeout: seconds or timedelta to wait for another process's commit.
        background: have threads for "everysec", for what is due, retention and compaction.
        clock: what tells the time instead of the system's clock.
        node_max_bytes: bytes of a node; the three limits are fixed when the store is made.
        node_max_entries: entries of a node.
        segment_bytes: bytes of a segment of the log.
        compact_rate: bytes a second of compaction in the background; 0, None: by ``compact`` only.
        low_space_bytes: with fewer bytes free on its disk the thread in the background logs a
            warning; 0: never; None: twice a segment, or a twentieth of the disk (10 GiB at most).

    Returns:
        The store.

    Raises:
        OptionError: an option is not valid, or another one than the store was made with.
        NotAStoreError: there is something else at ``path``, or nothing and ``create`` is False.
        FormatVersionError: a later version made it.
        DamagedStoreError: it cannot be made whole; the message says what to do.
        LockTimeoutError: another process held the lock for longer than ``lock_timeout``.
        FileSystemError: the system refused.
    """
    arguments.check_names(options, OpenOptions, "open")
    create = options.get("create", True)
    if create != "auto":
        arguments.check_flag(create, "create")
    if encoding is not None:
        arguments.check_encoding(encoding)
    given: Any = options
    wanted: dict[str, int] = {each: given[each] for each in LIMITS if given.get(each) is not None}
    limits = StoreLimits(**wanted)
    limits.check()
    readonly = options.get("readonly", False)
    asked = StoreOptions(
        options.get("sync", "everysec"),
        readonly,
        seconds(options.get("lock_timeout", 10.0), "lock_timeout"),
        options.get("background", True),
        checked(options.get("clock")),
        options.get("compact_rate", COMPACT_RATE_BYTES_S) or 0,
        options.get("low_space_bytes"),
    )
    asked.check()
    place, may_create = _place(path, readonly=readonly), bool(create) and not readonly
    opened: OpenStore[Any] = OpenStore(
        place, asked, encoding, limits, _tell_dead_letters, create=may_create
    )
    try:
        _check_limits(opened.engine().limits, wanted)
    except BaseException:
        opened.close()
        raise
    return Store(opened)


def _place(path: str | os.PathLike[str], *, readonly: bool) -> Path:
    """The directory of a store, or the URI of what was shipped of one."""
    arguments.place(path)
    found = path_of(path).absolute()
    if is_uri(found) and not readonly:
        raise OptionError(
            f"{found} is what was shipped of a store, to be read only: give readonly=True, or "
            "change the store itself"
        )
    return found


def open_to_look(path: str | os.PathLike[str]) -> Store[bytes]:
    """Open a store to read from it, as the commands do.

    Where another process has it open and this user owns it, this is one more of its processes. Else
    it is opened with ``readonly``, with a copy of the index that a clean close left. Both take no
    time, however long the history is; only a store that crashed is read as ``readonly`` reads it.

    Raises:
        NotAStoreError: there is none at ``path``; and what ``open_store`` raises.
    """
    place = _place(path, readonly=True)
    if not is_uri(place) and _may_join(place):
        joining = StoreOptions(lock_timeout_s=JOIN_WAIT_S, background=False, only_join=True)
        with suppress(Error, OSError):  # nobody has it open, or whoever has is stuck
            return _opened(place, joining)
    return _opened(place, StoreOptions(readonly=True, copy_index=True))


def _opened(place: Path, options: StoreOptions) -> Store[bytes]:
    return Store(OpenStore(place, options, None, StoreLimits(), _tell_dead_letters, create=False))


def _may_join(place: Path) -> bool:
    """Whether joining would make no file, and none that its owner could not write to."""
    fs = FILES[0]
    try:
        owner = fs.stat(place).user
        return owner == os.geteuid() and all(
            fs.stat(place / name).user == owner
            for name in (file_names.LOCK, file_names.USERS, file_names.WAKE)
        )
    except OSError:
        return False


def _check_limits(has: StoreLimits, wanted: dict[str, int]) -> None:
    """OptionError if limits were asked for that the store was not made with."""
    for name, value in wanted.items():
        if getattr(has, name) != value:
            raise OptionError(
                f"the store was created with {name}={getattr(has, name)}, or set to it, and "
                f"opening it does not change that to {value}: "
                "leave the option out, or make a new store and export into it"
            )


def _tell_dead_letters(
    opened: OpenStore[Any], dead: list[DeadLettered], on_dead: Callable[[Any], object] | None
) -> None:
    """Tell whoever wants to know of entries that a commit of this handle dead-lettered. Where that
    cannot be, it is logged: the commit counts, and what it gave is the caller's."""
    from logstore.api import coded, dead_letters
    from logstore.api.group import Group

    try:
        groups = {
            key: Group(coded.as_kept(opened, key[0]), key[1])
            for key in {(entry.origin, entry.group) for entry in dead}
        }
        dead_letters.tell(opened, dead, groups, on_dead)
    except Error:
        dead_letters.log.exception("of %d dead-lettered entries nobody could be told", len(dead))
