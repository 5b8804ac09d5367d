"""What is kept with a stream or a group beside its entries: retention, idempotent adds, redelivery.

Plain values, checked when they are made from what a user gives; times in whole milliseconds or
seconds as their names say. ``None`` is "not set". Imports errors only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.errors import CorruptionError, OptionError, shown
from logstore.tuples import NamedTuple

AMOUNT_MAX = (1 << 63) - 1
LENGTH_MAX_MS = timedelta.max // timedelta(milliseconds=1)
IDEMPOTENT_DURATION_S, IDEMPOTENT_DURATION_MAX_S = 100, 86_400
IDEMPOTENT_IDS, IDEMPOTENT_IDS_MAX = 100, 10_000
CODEC_NAME_MAX = 64
FIELD_MAX_BYTES = 64 * 1024
BACKOFF_MAX_MS = 3_600_000
T = TypeVar("T", bytes, str)
if TYPE_CHECKING:  # names in quotes load Python's compiler where this runs
    S = TypeVar("S", "StreamSettings", "GroupSettings[bytes]")


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
