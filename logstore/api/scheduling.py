"""Scheduled entries, as users see them: keys, entries that wait for their time, arguments.

Invariants: everything is refused here, before a lock is taken. A moment between two milliseconds
counts as the later one, so that nothing comes early. It knows no logic of the disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

from logstore.api import arguments
from logstore.api.entry import Decoding, Fields, fields_of, pairs_of
from logstore.api.opening import OpenStore
from logstore.clock import SECONDS_MAX, Clock
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import due_entries as scheduling
from logstore.engine.features import expiry as expiring
from logstore.engine.features.due_entries import DUE_MAX_MS, DueTime
from logstore.engine.features.expiry import Condition
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import OptionError, TooLargeError, shown
from logstore.features import cron as repeating
from logstore.features.cron import CRON_MAX_CHARS, NAME_MAX_BYTES, Repeat
from logstore.features.schedule_rows import FIRST, Key, ScheduleRow, ScheduleRows, packed, unpacked
from logstore.ids import moment_of
from logstore.options import Length, Sync
from logstore.tuples import NamedTuple

T = TypeVar("T", bytes, str)
FIELDS_MAX_BYTES = 16 << 20  # the index and each checkpoint hold them until their time
AFTER_MAX_MS = DUE_MAX_MS // 2
PAGE_ENTRIES, PAGE_BYTES = 256, 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

RepeatRule: TypeAlias = Repeat  # when a schedule comes again and again


class ScheduleKey(NamedTuple):
    """Names one scheduled entry of a stream, for as long as it waits; ``str(key)`` is its text."""

    due_ms: int  # unix ms
    number: int

    def __str__(self) -> str:
        return f"{self.due_ms}-{self.number}"

    @property
    def due(self) -> datetime:
        """When the entry is added, as an aware UTC datetime."""
        return moment(self.due_ms)


KeyLike: TypeAlias = ScheduleKey | str


class ScheduledEntry(Generic[T]):
    """An entry that waits for its time: ``key``, ``due``, ``fields``, ``pairs``.

    One that repeats has a ``name``, too, and ``every`` or ``cron`` and ``tz``.
    """

    __slots__ = ("_encoding", "_flat", "_repeat", "key")

    def __init__(
        self,
        key: ScheduleKey,
        flat: list[T],
        encoding: str | None,
        repeat: Repeat | None = None,
    ) -> None:
        self.key = key
        self._repeat = repeat
        self._flat: list[T] = flat
        self._encoding: str | Decoding | None = encoding

    @property
    def due(self) -> datetime:
        """When it is added, as an aware UTC datetime."""
        return self.key.due

    @property
    def name(self) -> str | None:
        """The name of the repeating schedule; None for an entry that comes once."""
        return None if self._repeat is None else self._repeat.name

    @property
    def every(self) -> timedelta | None:
        """How long it is from one time to the next, where the schedule says that."""
        return self._repeat.every_ms * _MS if self._repeat and self._repeat.every_ms else None

    @property
    def cron(self) -> str | None:
        """The cron expression of a repeating schedule."""
        return self._repeat.cron or None if self._repeat else None

    @property
    def tz(self) -> str | None:
        """The time zone of the cron expression."""
        return self._repeat.zone or None if self._repeat else None

    @property
    def fields(self) -> Fields[T]:
        """A mapping of field names to values."""
        return fields_of(self._flat, self._encoding)

    @property
    def pairs(self) -> list[tuple[T, T]]:
        """All (field, value) pairs, in order."""
        return pairs_of(self._flat, self._encoding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduledEntry):
            return NotImplemented
        return self.key == other.key and self._flat == other._flat

    def __hash__(self) -> int:
        return hash((self.key, tuple(self._flat)))

    def __repr__(self) -> str:
        named = "" if self.name is None else f", {self.name!r}"
        return f"ScheduledEntry({self.key}{named}, {self.fields!r})"


def moment(unix_ms: int) -> datetime:
    """Unix milliseconds as an aware UTC datetime."""
    return _EPOCH + timedelta(milliseconds=unix_ms)


def when(at: datetime | int | str | None, after: Length | None, clock: Clock) -> DueTime:
    """The time of a scheduled entry, from exactly one of the two. OptionError.

    Numbers that look like seconds are refused, too: as milliseconds they are days of January 1970,
    and what is due then is due at once. (Where ``clock`` itself stands there, they are taken.)
    """
    if at is None and after is None:
        raise OptionError(
            "give when: at= (an aware datetime, or unix milliseconds) or after=, or every= or "
            "cron= with a name to repeat it"
        )
    if at is not None and after is not None:
        raise OptionError("give at= (an aware datetime, or unix milliseconds) or after=, not both")
    if after is not None:
        length = arguments.length_s(after, "after", AFTER_MAX_MS)
        # From a timedelta exactly, of a float what its shortest text says.
        exact = after / _MS if isinstance(after, timedelta) else round(length * 1000, 6)
        return DueTime(math.ceil(exact), from_now=True)
    if isinstance(at, str):
        at = moment_of(at, clock.now_ms(), "at")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise OptionError("at must be an aware datetime: give it a time zone")
        unix_ms = -((_EPOCH - at) // _MS)
    elif isinstance(at, int) and not isinstance(at, bool):
        unix_ms = at
        if 0 <= at < SECONDS_MAX <= clock.now_ms():
            raise OptionError(
                f"at={at} looks like seconds, and at is unix milliseconds: give "
                "int(1000 * time.time()) or an aware datetime, or after=0 for at once"
            )
    else:
        raise OptionError(
            "at must be an aware datetime, unix milliseconds as an int, or text such as "
            f"'2027-01-31T12:00Z', not {shown(at)}"
        )
    if not 0 <= unix_ms <= DUE_MAX_MS:
        raise OptionError("at must be a time of the years 1970 to 9999")
    return DueTime(unix_ms)


class ScheduleOptions(TypedDict, total=False):
    """Options of a scheduled entry, as ``Stream.schedule`` describes them."""

    at: datetime | int | str | None
    after: Length | None
    every: Length | None
    cron: str | None
    tz: str | None
    name: str | None
    sync: Sync | None


def step(
    stream: bytes, row: Row, opened: OpenStore[Any], create: bool, options: ScheduleOptions
) -> Callable[[WriteTxn], Key | None]:
    """What schedules an entry, as ``Stream.schedule`` is called. OptionError."""
    arguments.check_flag(create, "create")
    arguments.check_names(options, ScheduleOptions, "schedule")
    kept, clock = fields(row, opened.encoding), opened.engine().clock
    at, after = options.get("at"), options.get("after")
    every, cron = options.get("every"), options.get("cron")
    name, tz = options.get("name"), options.get("tz")
    if every is None and cron is None:
        if name is not None or tz is not None:
            raise OptionError(
                "a name and a time zone are of schedules that repeat, with every= or cron="
            )
        once = when(at, after, clock)
        return partial(scheduling.schedule, name=stream, fields=kept, when=once, create=create)
    if after is not None:
        raise OptionError(
            "a schedule that repeats begins at one of its times: give that as at, not after"
        )
    rule = repeat(name, clock, at=at, every=every, cron=cron, tz=tz)
    return partial(scheduling.repeat, name=stream, fields=kept, rule=rule, create=create)


def cancelling(stream: bytes, key: KeyLike | None, name: str | None) -> Callable[[WriteTxn], bool]:
    """What cancels by a key, or by the name of a schedule that repeats. OptionError."""
    if (key is None) == (name is None):
        raise OptionError("give the key of an entry, or the name of a schedule that repeats")
    if key is None:
        return partial(scheduling.cancel_named, stream=stream, name=_name(name))
    return partial(scheduling.cancel, name=stream, key=key_of(key))


def repeat(
    name: str | None,
    clock: Clock,
    *,
    at: datetime | int | str | None = None,
    every: Length | None,
    cron: str | None,
    tz: str | None,
) -> Repeat:
    """The rule of a schedule that repeats, as ``Stream.schedule`` takes it. OptionError."""
    first_ms = None if at is None else when(at, None, clock).ms
    found = _rule(_name(name), first_ms, every, cron, tz)
    if found.after(clock.now_ms()) is None:
        raise OptionError(f"the cron expression {shown(cron)} never fires: there is no such day")
    return found


def _rule(
    name: str,
    first_ms: int | None,
    every: Length | None,
    cron: str | None,
    tz: str | None,
) -> Repeat:
    if (every is None) == (cron is None):
        raise OptionError("give either every= or cron=")
    if every is not None:
        length = arguments.length_s(every, "every", AFTER_MAX_MS)
        if length < 0.001:
            raise OptionError(
                f"every must be a length of time, a millisecond or more: {shown(every)}"
            )
        if tz is not None:
            raise OptionError(
                "a time zone is of a cron expression: a length is the same in all of them"
            )
        every_ms = round(length * 1000)
        # One of the times; 1970 itself stands for no wish, and is as good as the time after it.
        return Repeat(name, every_ms, every_ms if first_ms == 0 else first_ms or 0, "", "")
    if first_ms is not None:
        raise OptionError("a cron expression says all of its times: leave out at")
    if not isinstance(cron, str) or not cron.strip() or len(cron) > CRON_MAX_CHARS:
        raise OptionError(
            f"cron must be a text of five fields, as '30 3 * * MON-FRI': {shown(cron)}"
        )
    zone = "UTC" if tz is None else tz
    if not isinstance(zone, str) or not zone or len(zone) > CRON_MAX_CHARS:
        raise OptionError(f"tz must be the IANA name of a time zone, as Europe/Berlin: {shown(tz)}")
    return Repeat(name, 0, 0, cron, zone)


def is_name(given: object) -> bool:
    """Whether a schedule may have this name."""
    return (
        isinstance(given, str)
        and given.isprintable()
        and 0 < len(given.encode("utf-8", "replace")) <= NAME_MAX_BYTES
    )


def _name(given: str | None) -> str:
    if given is None or not is_name(given):
        raise OptionError(
            f"a schedule that repeats needs a name, a text of at most {NAME_MAX_BYTES} bytes, by "
            f"which it is changed and cancelled: not {shown(given)}"
        )
    return given


def expiry(
    name: bytes,
    at: datetime | int | str | None,
    after: Length | None,
    only: Condition | None,
    clock: Clock,
) -> Callable[[WriteTxn], bool]:
    """What sets when a stream expires. OptionError."""
    if only is not None:
        arguments.check_choice(only, Condition, "only")
    conditions: set[Condition] = set() if only is None else {only}
    return partial(expiring.expire, name=name, when=when(at, after, clock), conditions=conditions)


def expires_at(unix_ms: int) -> datetime | None:
    """When a stream expires; None: never (0). A later time than a datetime has is its latest."""
    return moment(min(unix_ms, DUE_MAX_MS)) if unix_ms else None


def left(unix_ms: int, now_ms: int) -> timedelta | None:
    """How long it is until then; None: it never comes (0)."""
    return max(0, min(unix_ms, DUE_MAX_MS) - now_ms) * _MS if unix_ms else None


def fields(row: Row, encoding: str | None) -> bytes:
    """The fields of an entry to schedule, packed. The errors of an add, and TooLargeError."""
    batch = arguments.rows([row], encoding)
    if batch.raw_bytes(0) > FIELDS_MAX_BYTES:
        raise TooLargeError(
            f"fields and values of a scheduled entry have at most {FIELDS_MAX_BYTES >> 20} MiB "
            f"together, not {batch.raw_bytes(0)} bytes: keep them elsewhere until it is time"
        )
    return packed(batch.flat(0))


def key_of(given: KeyLike) -> Key:
    """A key, or its text, as the engine takes it. OptionError if it is no key."""
    parts: Any = given
    if isinstance(given, str):
        ms, dash, number = given.partition("-")
        if dash and all(part.isascii() and part.isdigit() for part in (ms, number)):
            parts = int(ms), int(number)
    pair = isinstance(parts, tuple) and len(parts) == 2
    if pair and all(type(part) is int and 0 <= part < 1 << 64 for part in parts):
        return parts[0], parts[1]
    raise OptionError(f"give the key that schedule() returned, or its text, not {shown(given)}")


def typed_key(key: Key | None) -> ScheduleKey | None:
    """A key of the engine's, for users; None stays None."""
    return None if key is None else ScheduleKey(*key)


def entries(
    engine: Callable[[], Engine], name: bytes, encoding: str | None
) -> Iterator[ScheduledEntry[Any]]:
    """What is scheduled for a stream, in the order of time, lazily: a snapshot a page.

    Behind a page that is not full there is no look for another one: what repeats, and came
    meanwhile, would be there once more, under its next time.
    """
    after, more = FIRST, True
    while more:
        rows, more = snapshot.read(engine(), partial(_page, name=name, after=after))
        for row in rows:
            flat: list[Any] = unpacked(row.fields)
            if encoding is not None:
                flat = [part.decode(encoding, "surrogateescape") for part in flat]
            rule = repeating.of(row.fields)
            yield ScheduledEntry(ScheduleKey(row.due_ms, row.number), flat, encoding, rule)
            after = row.due_ms, row.number


def _page(view: Snapshot, name: bytes, after: Key) -> tuple[list[ScheduleRow], bool]:
    """The next rows, and whether the page is full."""
    rows: list[ScheduleRow] = []
    record = view.record(name)
    left_bytes = PAGE_BYTES
    for row in (
        ScheduleRows(view.index).of_stream(record.number, after) if record is not None else ()
    ):
        rows.append(row)
        left_bytes -= len(row.fields)
        if left_bytes <= 0 or len(rows) == PAGE_ENTRIES:
            return rows, True
    return rows, False


__all__ = [
    "KeyLike",
    "ScheduleKey",
    "ScheduleOptions",
    "ScheduledEntry",
    "cancelling",
    "entries",
    "fields",
    "is_name",
    "moment",
    "repeat",
    "step",
    "typed_key",
    "when",
]
