"""Arguments of public calls, checked and turned into what the engine takes.

Invariants: everything is refused here, before a lock is taken; a typed error says what to do. Rows
of an iterable are taken a batch at a time, outside every lock.
"""

from __future__ import annotations

import codecs
import math
import os
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from logstore.clock import CLOCK_MAX_MS, Clock
from logstore.codec import GivenIDs, Row, RowBatch, codec
from logstore.engine.streams.add import AUTO, AutoID
from logstore.engine.streams.removal import TrimRule, check_rule
from logstore.errors import (
    EntryTypeError,
    InvalidEntryError,
    InvalidIDError,
    OptionError,
    shown,
)
from logstore.ids import (
    ZERO_ID,
    IDLike,
    StreamID,
    moment_span,
    parse_auto,
    parse_end,
    parse_id,
    parse_start,
    since_id,
    until_id,
)
from logstore.options import (
    AMOUNT_MAX,
    LENGTH_MAX_MS,
    NAME_MAX_BYTES,
    Length,
    References,
    check_name,
    seconds,
)
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.groups.ack import NackDelay
    from logstore.ids import When

# The ID of an add that gives none. Compared by address, which is one for all such texts in CPython:
# another one is an ID that is read.
ANY_ID = "*"
TIMEOUT_MAX_S = 1_000_000_000  # thirty years and more: for ever
# What redis-py and others call some options.
_PEERS = {"maxlen": "max_entries", "minid": "min_id"}


def entry_ids(ids: Sequence[IDLike]) -> Sequence[StreamID]:
    """IDs that were given; those that are IDs already, as most are, stay as they are.

    Raises:
        InvalidIDError: one of them is not valid.
    """
    if codec().are_ids(ids, StreamID):
        return cast("Sequence[StreamID]", ids)
    return [parse_id(wanted) for wanted in ids]


def check_encoding(encoding: str) -> None:
    """OptionError unless all bytes survive being decoded and encoded again."""
    every = bytes(range(256))
    try:
        kept = every.decode(encoding, "surrogateescape").encode(encoding, "surrogateescape")
    except (LookupError, TypeError, UnicodeError):
        kept = b""
    if kept != every:
        raise OptionError(
            f"encoding must name a text encoding that keeps any bytes, not {shown(encoding)}: give "
            "'utf-8', 'latin-1' or the like, or None for bytes"
        )


def text_bytes(text: str, encoding: str | None) -> bytes:
    """A str in the store's encoding; what was no text when it was read becomes its bytes again."""
    try:
        return text.encode(encoding or "utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidEntryError(f"{text[:32]!r} cannot be stored: {error}; give bytes") from error


def stream_name(
    name: str | bytes, encoding: str | None = None, *, what: str = "a stream name"
) -> bytes:
    """A stream's name as bytes, at most 64 KiB."""
    if isinstance(name, str):
        name = text_bytes(name, encoding)
    if not isinstance(name, bytes):
        raise EntryTypeError(f"{what} is str or bytes, not {type(name).__name__}")
    if len(name) > NAME_MAX_BYTES:
        check_name(name, what)  # raises
    return name if type(name) is bytes else bytes(name)


def group_name(name: str | bytes, encoding: str | None = None) -> bytes:
    """A consumer group's name as bytes, at most 64 KiB."""
    return stream_name(name, encoding, what="a group name")


def consumer_name(name: str | bytes, encoding: str | None = None) -> bytes:
    """A consumer's name as bytes, at most 64 KiB and not empty (that would be nobody)."""
    consumer = stream_name(name, encoding, what="a consumer name")
    if not consumer:
        raise OptionError("a consumer name must not be empty: give each worker one of its own")
    return consumer


def add_id(id: IDLike) -> AutoID | StreamID:
    """The ID of an add: "*", "<ms>-*", or a whole one that is not 0-0."""
    text = id.decode("latin-1") if isinstance(id, bytes) else id
    if text == "*":
        return AUTO
    if isinstance(text, str) and text.endswith("-*"):
        return AutoID(parse_auto(text))
    whole = parse_id(id)
    if whole == ZERO_ID:
        raise InvalidIDError("The ID specified in XADD must be greater than 0-0")
    return whole


class Trimming(NamedTuple):
    """What is trimmed after an add, as its arguments say."""

    max_entries: int | None
    min_id: IDLike | None
    approximate: bool
    limit: int | None
    references: str

    def rule(self) -> TrimRule | None:
        """The rule; None if nothing is trimmed. OptionError."""
        max_entries, min_id, approximate, limit, references = self
        return trim_rule(
            max_entries,
            min_id,
            None,
            approximate=approximate,
            limit=limit,
            references=references,
            optional=True,
        )


def trim_rule(
    max_entries: int | None,
    min_id: IDLike | None,
    max_age: Length | None,
    *,
    approximate: bool,
    limit: int | None,
    optional: bool,
    references: str = "keep",
) -> TrimRule | None:
    """The rule of a trim; None if none is asked for and ``optional``."""
    check_choice(references, References, "references")
    check_flag(approximate, "approximate")
    if optional and max_entries is None and min_id is None and limit is None:
        if references != "keep":
            raise OptionError(
                "give max_entries or min_id with references: it is about what is trimmed"
            )
        return None
    check_count(max_entries, "max_entries")
    check_count(limit, "limit")
    age_ms = None if max_age is None else milliseconds(max_age, "max_age")
    least = None if min_id is None else parse_id(min_id)
    rule = TrimRule(max_entries, least, approximate, limit, age_ms, references)
    check_rule(rule)
    return rule


def check_names(options: Mapping[str, object], known: type[Any], call: str) -> None:
    """TypeError for an option that a TypedDict does not name, as Python has it."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            from difflib import get_close_matches

            near = _PEERS.get(name) or next(iter(get_close_matches(name, names, 1)), "")
            hint = f". Did you mean {near!r}?" if near in names else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")


def check_count(value: object, name: str) -> None:
    """OptionError for what is neither an int of 64 bits, with a sign, nor None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise OptionError(f"{name} must be at most 2^63-1")


def range_count(count: int | None, name: str = "count") -> int:
    """How many are asked for at most; -1 if there is no limit. OptionError."""
    check_count(count, name)
    if count is not None and count < 0:
        raise OptionError(f"{name} must not be negative: {count}")
    return -1 if count is None else count


def check_between(value: object, name: str, least: int, most: int) -> None:
    """OptionError for what is no int between these, both included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not least <= value <= most:
        raise OptionError(f"{name} must be {least} to {most}: {shown(value)}")


def check_flag(value: object, name: str) -> None:
    """OptionError for what is neither True nor False: 0, 1 and words are taken for mistakes."""
    if value is not True and value is not False:
        raise OptionError(f"{name} must be True or False, not {shown(value)}")


def place(path: object) -> Path:
    """A path as it was given; OptionError for a value that is no path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise OptionError(f"path must be str or os.PathLike, not {shown(path)}")
    return Path(path)


def uri(value: object) -> str:
    """A URI, or a directory's path, as it was given; OptionError for any other value."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, os.PathLike):
        return str(place(value))
    raise OptionError(f"uri must be a URI or a path, not {shown(value)}")


def check_share(value: object, name: str) -> None:
    """OptionError for what is no number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise OptionError(f"{name} must be a number from 0 to 1: {shown(value)}")


def reason(error: str) -> bytes:
    """Why an entry is given back; OptionError for what is no text."""
    if not isinstance(error, str):
        raise OptionError(f"error must be text, such as repr(exception), not {shown(error)}")
    return error.encode("utf-8", "backslashreplace")


def interval(start: IDLike, end: IDLike) -> tuple[StreamID, StreamID]:
    """The first and the last ID of an interval; OptionError if its ends are swapped.

    An interval that ends where it begins, or right before, is empty: who reads on behind the last
    ID he saw comes to that.
    """
    low, high = _first_id(start), _last_id(end)
    if low > high:
        first, last = parse_start(_included(start)), parse_end(_included(end))
        if first > last and first != last.next():
            raise OptionError(
                f"start ({start!s}) is above end ({end!s}): give the smaller ID first, and "
                "reverse=True to read from the newest on"
            )
    return low, high


def moments(
    start: IDLike, end: IDLike, since: When | None, until: When | None, clock: Clock
) -> tuple[StreamID, StreamID]:
    """The first and the last ID of an interval whose ends may be moments. OptionError."""
    if since is None and until is None:
        return interval(start, end)
    low, high = _first_id(start), _last_id(end)
    now_ms = clock.now_ms()
    if since is not None:
        if start not in ("-", b"-"):
            raise OptionError("start and since are the same end: give one of them")
        low = since_id(since, now_ms)
    if until is not None:
        if end not in ("+", b"+"):
            raise OptionError("end and until are the same end: give one of them")
        high = until_id(until, now_ms)
    if low > high and low.previous() != high:
        first, last = "start" if since is None else "since", "end" if until is None else "until"
        raise OptionError(f"{first} ({low}) is above {last} ({high}): give the earlier one first")
    return low, high


def _first_id(start: IDLike) -> StreamID:
    try:
        return parse_start(start)
    except InvalidIDError as error:
        raise InvalidIDError(f"start: {error.message}{_as_moment(start, 'since')}") from None


def _last_id(end: IDLike) -> StreamID:
    try:
        return parse_end(end)
    except InvalidIDError as error:
        raise InvalidIDError(f"end: {error.message}{_as_moment(end, 'until')}") from None


def _as_moment(given: object, name: str) -> str:
    """Advice for an end that is a moment, and no ID."""
    if not isinstance(given, str | timedelta | date):
        return ""
    try:
        moment_span(given, CLOCK_MAX_MS, name)
    except OptionError:
        return ""
    return f". It is a moment: a range takes that as {name}={shown(given)}"


def _included(end: IDLike) -> IDLike:
    """One end of an interval without the "(" that leaves it out."""
    text = end.decode("latin-1") if isinstance(end, bytes) else end
    return text.removeprefix("(") if isinstance(text, str) else text


def read_count(count: int | None) -> int:
    """How many entries a read may give; 0 stands for no limit, as None does."""
    check_count(count, "count")
    if count is not None and count < 0:
        raise OptionError(f"count must not be negative: {count}")
    return count or 0


def deadline_of(timeout: Length | None) -> float | None:
    """When a wait ends, by ``time.monotonic``; None: never. OptionError for what is no time."""
    if timeout is None:
        return None
    if type(timeout) is int and not timeout:  # as most reads are made
        return 0.0
    given = seconds(timeout, "timeout")
    if math.isnan(given) or given < 0:
        raise OptionError(
            f"timeout must be 0 (do not wait) or more seconds, or None (for ever): {shown(timeout)}"
        )
    return time.monotonic() + given if given < TIMEOUT_MAX_S else None


class Limits(NamedTuple):
    """How much a read may give."""

    count: int = 0  # type: ignore[assignment]  # entries of one stream; 0: no limit
    max_count: int | None = None  # entries of all streams
    max_bytes: int | None = None  # of all entries, but the first entry comes in any case


def limits(count: int | None, max_count: int | None, max_bytes: int | None) -> Limits:
    """The limits of a read, checked; OptionError. A negative ``count`` is no limit, as in XREAD."""
    check_count(count, "count")
    for value, name in ((max_count, "max_count"), (max_bytes, "max_bytes")):
        check_count(value, name)
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more, or None (no limit): {value}")
    if count is not None and max_count is not None and max_count < count:
        raise OptionError(f"max_count must not be below count: {max_count} < {count}")
    return Limits(max(count or 0, 0), max_count, max_bytes)


class GroupReadArguments(NamedTuple):
    """What a read of a group asks for, checked."""

    consumer: bytes
    limit: int  # of entries; 0: none
    max_bytes: int  # of all entries; 0: no limit
    asked_idle_ms: int | None
    deadline: float | None  # of ``time.monotonic``; None: none
    noack: bool

    def options(self) -> dict[str, Any]:
        """What is asked for beside who reads, how many and until when."""
        return {
            "noack": self.noack,
            "asked_idle_ms": self.asked_idle_ms,
            "max_bytes": self.max_bytes,
        }


def group_read(
    consumer: str | bytes,
    encoding: str | None,
    *,
    count: int | None = None,
    max_count: int | None = None,
    max_bytes: int | None = None,
    timeout: Length | None = 0,
    noack: bool = False,
    min_idle: Length | None = None,
) -> GroupReadArguments:
    """The arguments of a read of a group; ``count`` 0 or None: no limit."""
    check_flag(noack, "noack")
    idle_ms = None if min_idle is None else milliseconds(min_idle, "min_idle")
    limit, most_bytes = read_count(count), 0
    if max_count is not None or max_bytes is not None:
        allowed = limits(count, max_count, max_bytes)
        limit, most_bytes = allowed.count or allowed.max_count or 0, allowed.max_bytes or 0
    who = consumer_name(consumer, encoding)
    return GroupReadArguments(who, limit, most_bytes, idle_ms, deadline_of(timeout), noack)


def milliseconds(length: Length, name: str) -> int:
    """A length of time as whole milliseconds. OptionError."""
    return int(round(length_s(length, name) * 1000, 6))  # what its shortest text says


def length_s(length: Length, name: str, most_ms: int = LENGTH_MAX_MS) -> float:
    """Seconds of a length of time that is not negative, and not above ``most_ms``. OptionError."""
    given = seconds(length, name)
    if not 0 <= given < math.inf:
        raise OptionError(f"{name} must be a length of time, not negative: {shown(length)}")
    if given * 1000 > most_ms:
        most = timedelta(milliseconds=most_ms).days
        raise OptionError(f"{name} must be at most {most} days: {shown(length)}")
    return given


def ttl_ms(ttl: Length | None) -> int | None:
    """How long an entry lives; None: for ever. OptionError for a time that is over at once."""
    if ttl is None:
        return None
    length_ms = milliseconds(ttl, "ttl")
    if not length_ms:
        raise OptionError(f"ttl must be at least a millisecond: {shown(ttl)}")
    return length_ms


def later(delay: Length | None) -> NackDelay | None:
    """How long an entry that is given back waits; None: what is set for the group."""
    if delay is None:
        return None
    from logstore.engine.groups.ack import NackDelay

    delay_ms = milliseconds(delay, "delay")
    return NackDelay(delay_ms, delay_ms)


def group_position(start: IDLike) -> StreamID | None:
    """Where a group begins; None for "$", the stream's last ID at the commit."""
    if start in ("$", b"$"):
        return None
    return ZERO_ID if start in ("-", b"-") else parse_id(start)


def check_choice(value: object, choices: Any, name: str) -> None:
    """OptionError for a value that is not one of a Literal's words."""
    words = get_args(choices)
    if value not in words:
        choices = ", ".join(map(repr, words))
        raise OptionError(f"{name} must be one of {choices}, not {shown(value)}")


def rows(items: Iterable[Row], encoding: str | None) -> RowBatch:
    """Rows made ready to be packed; str becomes bytes in the store's encoding."""
    if encoding is None:
        return codec().rows(items)
    ready = [list(row) if isinstance(row, Iterator) else row for row in items]
    if codecs.lookup(encoding).name == "utf-8":
        try:
            return codec().rows(ready)
        except InvalidEntryError:
            pass  # it may be bytes that were no text when they were read
    return codec().rows([_encoded(row, encoding) for row in ready])


def _encoded(row: Any, encoding: str) -> Any:
    """The row with its str as bytes; what is no row stays as it is, to be refused."""
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        return row
    pairs: Iterable[Any] = row.items() if isinstance(row, Mapping) else row
    return [
        tuple(text_bytes(part, encoding) if isinstance(part, str) else part for part in pair)
        if isinstance(pair, tuple | list)
        else pair
        for pair in pairs
    ]


def iterated(items: Iterable[Any]) -> Iterator[Any]:
    """An iterator over rows; EntryTypeError for what cannot be iterated over."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        hint = "give a list of entries, or any iterable"
        if isinstance(items, AsyncIterable):
            hint = "open the store with logstore.aio.open, whose add_many takes async generators"
        raise EntryTypeError(f"rows are an iterable of entries, not {type(items).__name__}: {hint}")
    return iter(items)


def batches(
    items: Iterable[Row | tuple[IDLike, Row]],
    size: int,
    made: Callable[[list[Any]], RowBatch],
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    """Rows in batches, each with its IDs; rows with and without IDs are never mixed in one call.

    ``made`` makes rows ready, as ``rows`` does.
    """
    source = iterated(items)
    done = 0
    from logstore.codec.given_ids import has_id

    with_id: bool | None = None
    while chunk := list(islice(source, size)):
        if with_id is None:
            with_id = has_id(chunk[0])
        if not with_id:  # a row with an ID among them is no row: it is refused there
            yield AUTO, made(chunk)
            continue
        ids, fields = codec().given(chunk, done)
        done += len(chunk)
        yield ids, made(fields)
