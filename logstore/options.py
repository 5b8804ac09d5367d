"""Options and limits of a store, and settings of streams and groups: plain values that are checked.

``StoreOptions`` is what a process asks for at open; ``StoreLimits`` is what was fixed when the
store was created and stands in its STORE file. ``StreamSettings`` and ``GroupSettings`` are kept
with a stream or a group beside its entries: retention, idempotent adds, redelivery; ``None`` is
"not set". Times are whole milliseconds or seconds as their names say. Imports errors and the clock
only.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, get_args

from logstore.clock import SYSTEM_CLOCK, Clock, read_length
from logstore.errors import CorruptionError, OptionError, TooLargeError, shown
from logstore.tuples import NamedTuple

if TYPE_CHECKING:  # names in quotes load Python's compiler where this runs
    S = TypeVar("S", "StreamSettings", "GroupSettings[bytes]")

T = TypeVar("T", bytes, str)
Length: TypeAlias = timedelta | float | str  # of time: a number is seconds, a text has its unit

AMOUNT_MAX = (1 << 63) - 1  # of anything that is counted
LENGTH_MAX_MS = timedelta.max // timedelta(milliseconds=1)  # of a length of time
IDEMPOTENT_DURATION_S, IDEMPOTENT_DURATION_MAX_S = 100, 86_400
IDEMPOTENT_IDS, IDEMPOTENT_IDS_MAX = 100, 10_000
CODEC_NAME_MAX = 64
FIELD_MAX_BYTES = 64 * 1024
BACKOFF_MAX_MS = 3_600_000


# -- settings of streams and groups -----------------------------------------------------------
class StreamSettings(NamedTuple):
    """Settings of a stream. Retention drops whole nodes from the old end, in the background."""

    max_age_ms: int | None = None  # keep what is not older, by the milliseconds of the IDs
    max_entries: int | None = None  # keep at least as many of the newest
    max_bytes: int | None = None  # keep no more bytes of nodes
    idempotent_duration_s: int = IDEMPOTENT_DURATION_S  # how long a producer's ID is remembered
    idempotent_max_ids: int = IDEMPOTENT_IDS  # how many of a producer are remembered
    codec: str | None = None  # what values are encoded with; None: they are text or bytes
    compact_by: bytes | str | None = None  # of each value of this field keep the newest entry
    keep_until_shipped: bool = False  # retention drops only what a ship published

    @property
    def max_age(self) -> timedelta | None:
        """How old what is kept may be."""
        return _length(self.max_age_ms)

    @property
    def idempotent_duration(self) -> timedelta:
        """How long a producer's ID is remembered."""
        return timedelta(seconds=self.idempotent_duration_s)

    @property
    def retains(self) -> bool:
        """Whether anything is ever dropped because of these settings."""
        return not (self.max_age_ms is self.max_entries is self.max_bytes is None)

    def check(self) -> None:
        """OptionError for values out of range."""
        for name in ("max_age_ms", "max_entries", "max_bytes"):
            _check_amount(name, getattr(self, name), 0)
        _check_range("idempotent_duration", self.idempotent_duration_s, IDEMPOTENT_DURATION_MAX_S)
        _check_range("idempotent_max_ids", self.idempotent_max_ids, IDEMPOTENT_IDS_MAX)
        codec: object = self.codec
        if codec is not None and not (isinstance(codec, str) and len(codec) <= CODEC_NAME_MAX):
            raise OptionError(f"codec must be a name: {shown(codec)}")
        if not isinstance(self.keep_until_shipped, bool):
            raise OptionError(
                f"keep_until_shipped must be True or False: {shown(self.keep_until_shipped)}"
            )
        field: object = self.compact_by
        if field is not None and not (isinstance(field, bytes) and len(field) <= FIELD_MAX_BYTES):
            raise OptionError(
                f"compact_by must be the name of a field, at most {FIELD_MAX_BYTES} bytes: "
                f"{shown(field)}"
            )


class GroupSettings(NamedTuple, Generic[T]):
    """Settings of a group: what becomes of entries that nobody acknowledged."""

    max_deliveries: int | None = None  # after so many without an ack an entry is dead
    dead_letter: T | None = None  # the stream where it goes then
    min_idle_ms: int | None = None  # idle for so long, it goes to whoever reads next
    backoff_ms: int | None = None  # what failed waits for so long, twice as long each time
    backoff_max_ms: int = BACKOFF_MAX_MS  # but never longer

    @property
    def backoff(self: GroupSettings[Any]) -> timedelta | None:
        """How long an entry that failed once waits for its next delivery."""
        return _length(self.backoff_ms)

    @property
    def min_idle(self: GroupSettings[Any]) -> timedelta | None:
        """How long an entry may be pending before it goes to whoever reads next."""
        return _length(self.min_idle_ms)

    def check(self: GroupSettings[Any]) -> None:
        """OptionError for values out of range, or for one without the other."""
        _check_amount("max_deliveries", self.max_deliveries, 1)
        _check_amount("min_idle", self.min_idle_ms, 1)
        _check_amount("backoff", self.backoff_ms, 0)
        _check_range("backoff_max", self.backoff_max_ms, LENGTH_MAX_MS)
        if self.backoff_ms is not None and self.min_idle_ms is None:
            raise OptionError(
                "give min_idle with backoff: an entry that waits goes to who reads by that"
            )
        if (self.max_deliveries is None) != (self.dead_letter is None):
            raise OptionError("give max_deliveries and dead_letter both, or neither")


def backoff_ms(first_ms: int, most_ms: int, deliveries: int) -> int:
    """How long an entry waits after so many deliveries that failed: twice as long each time."""
    return min(most_ms, first_ms << min(max(deliveries, 1) - 1, 62))


def _length(length_ms: int | None) -> timedelta | None:
    return None if length_ms is None else timedelta(milliseconds=min(length_ms, LENGTH_MAX_MS))


def _check_amount(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not least <= value <= AMOUNT_MAX:
        raise OptionError(f"{name} must be {least} to 2^63-1: {shown(value)}")


def _check_range(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not 1 <= value <= most:
        raise OptionError(f"{name} must be 1 to {most}: {shown(value)}")


def stored(settings: StreamSettings | GroupSettings[bytes]) -> dict[str, Any]:
    """What is kept of settings: those that are not as they are by default."""
    plain = type(settings)()
    return {
        name: value for name, value in settings._asdict().items() if value != getattr(plain, name)
    }


def restored(made: type[S], kept: dict[str, Any]) -> S:
    """Settings of what was kept; CorruptionError for other values. Unknown settings are ignored."""
    known = set(made._fields)
    found = made(**{name: value for name, value in kept.items() if name in known})
    try:
        found.check()
    except OptionError as exc:
        raise CorruptionError(f"settings that were kept are damaged: {exc.message}") from exc
    return found


Sync: TypeAlias = Literal["always", "everysec", "os"]
References: TypeAlias = Literal["keep", "delete", "acked"]  # what becomes of what groups hold
# What a delivery that is given back counts as, as XNACK has it.
NackMode: TypeAlias = Literal["silent", "fail", "fatal"]
# Whose commands and replies a server has; "valkey-9" is 9.1.
Profile: TypeAlias = Literal["redis-8.2", "redis-8.10", "valkey-9", "valkey-9.2"]
# -- options and limits of a store ------------------------------------------------------------
SYNC_RANK: dict[str, int] = {"os": 0, "everysec": 1, "always": 2}

MIB = 1 << 20
NODE_MAX_BYTES = 4096
NODE_MAX_ENTRIES = 100
SEGMENT_BYTES = 64 * MIB
SEGMENT_BYTES_MIN = 64 * 1024
SEGMENT_BYTES_MAX = 1 << 30
IMPORTING = b"__importing__:"  # what names of streams begin with that are not there whole yet
COPYING = IMPORTING + b"copy:"  # the same, of copies inside the store
NAME_MAX_BYTES = 64 * 1024  # of a stream, a group, a consumer, wherever they come from
PRODUCER_ID_MAX_BYTES = 1024  # and of an idempotent ID
ENTRY_MAX_BYTES = 1 << 30
SYNC_INTERVAL_MS = 1000
COMPACT_RATE_BYTES_S = 16 * MIB
BATCH_MAX_ROWS = 1_000_000
LOCK_TIMEOUT_MAX_S = 1_000_000_000


class StoreLimits(NamedTuple):
    """Chosen at creation: the peers' node limits, which CONFIG SET may change, and the size of a
    segment."""

    node_max_bytes: int = NODE_MAX_BYTES
    node_max_entries: int = NODE_MAX_ENTRIES
    segment_bytes: int = SEGMENT_BYTES

    def check(self) -> None:
        """OptionError for limits that no store can have."""
        for name in ("node_max_bytes", "node_max_entries", "segment_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise OptionError(f"{name} must be an integer: {shown(value)}")
        if not 0 <= self.node_max_bytes <= ENTRY_MAX_BYTES:
            raise OptionError(
                f"node_max_bytes must be 0 (no limit) to 2^30: {shown(self.node_max_bytes)}"
            )
        if not 0 <= self.node_max_entries <= 1_000_000:
            raise OptionError(
                f"node_max_entries must be 0 (no limit) to 1,000,000: "
                f"{shown(self.node_max_entries)}"
            )
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise OptionError(f"segment_bytes must be 64 KiB to 1 GiB: {shown(self.segment_bytes)}")


class StoreOptions(NamedTuple):
    """How this process opens a store; two handles of one process must agree on all of it."""

    sync: Sync = "everysec"
    readonly: bool = False
    lock_timeout_s: float = 10.0
    background: bool = True
    clock: Clock = SYSTEM_CLOCK
    compact_rate_bytes_s: float = COMPACT_RATE_BYTES_S  # of compaction in the background; 0: none
    low_space_bytes: int | None = None  # with less a warning is logged; None: by size of the disk
    only_join: bool = False  # refuse a store that no other process has open
    copy_index: bool = False  # readonly: of a store that is closed, and what it says is believed

    def check(self) -> None:
        """OptionError for values out of range."""
        check_sync(self.sync)
        if not 0 <= self.lock_timeout_s <= LOCK_TIMEOUT_MAX_S:
            raise OptionError(
                f"lock_timeout must be 0 to {LOCK_TIMEOUT_MAX_S} seconds: {self.lock_timeout_s}"
            )
        rate = self.compact_rate_bytes_s
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < math.inf:
            raise OptionError(
                f"compact_rate must be bytes a second, 0 or None for none: {shown(rate)}"
            )
        low = self.low_space_bytes
        if low is not None and (
            isinstance(low, bool) or not isinstance(low, int) or not 0 <= low <= AMOUNT_MAX
        ):
            raise OptionError(
                f"low_space_bytes must be 0 (no warning) to 2^63-1, or None: {shown(low)}"
            )
        for name in ("readonly", "background", "only_join", "copy_index"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False: {shown(getattr(self, name))}")
        if not callable(getattr(self.clock, "now_ms", None)):
            raise OptionError(f"clock must have now_ms(), unix milliseconds: {shown(self.clock)}")


def check_sync(sync: str) -> None:
    """OptionError unless ``sync`` names a policy."""
    if sync not in get_args(Sync):
        raise OptionError(f"sync must be 'always', 'everysec' or 'os', not {shown(sync)}")


def check_name(name: bytes, what: str) -> None:
    """TooLargeError for a name that is longer than any may be; ``what`` it is the name of."""
    if len(name) > NAME_MAX_BYTES:
        raise TooLargeError(f"{what} has at most {NAME_MAX_BYTES} bytes, not {len(name)}")


def elapsed(ms: int) -> timedelta:
    """Milliseconds as a length of time; what a payload says of the past may be longer than that
    can be, or not be over yet."""
    return timedelta(milliseconds=min(max(0, ms), LENGTH_MAX_MS))


def seconds(value: Length, name: str) -> float:
    """Seconds of a length of time, as all lengths of the public face are given. OptionError."""
    if isinstance(value, str):
        try:
            value = read_length(value)
        except (ValueError, OverflowError) as error:
            raise OptionError(f"{name} {error}") from None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(
            f"{name} must be seconds or a timedelta, or text such as '90s', not {shown(value)}"
        )
    try:
        return float(value)
    except OverflowError:  # an int of hundreds of digits
        return math.inf if value > 0 else -math.inf
