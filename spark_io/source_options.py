"""Options of the Spark source, checked before anything is read.

Spark hands keys over in lower case and values as text. Invariants: an option that is not known, or
whose value cannot be, is an OptionError that names it; what is returned is plain data and can be
sent anywhere. Opens nothing but the STORE file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from logstore.errors import InvalidIDError, OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID, datetime_ms, parse_end, parse_start
from logstore.ids import U64_MAX as _U64_MAX
from logstore.log import pinfile
from logstore.scan.scan_columns import folded
from logstore.spark_io import offsets, places
from logstore.spark_io.offsets import EVERY, Offsets

KNOWN = (
    "path",
    "stream",
    "streams",
    "startId",
    "endId",
    "startTime",
    "endTime",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingGroup",
    "minPartitions",
    "pinHours",
    "mode",
    "columnNameOfCorruptRecord",
    "snapshotDir",
    "storeColumn",
    "asOf",
    "table",
    "failOnDataLoss",
)
OF_STREAMING = ("maxRowsPerTrigger", "maxBytesPerTrigger", "progressGroup")
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)
CORRUPT_RECORD = "_corrupt_record"
STORE_COLUMN = "store"
PIN_HOURS = PIN_HOURS_MAX = 1.0
PARTITIONS_MAX = 100_000
_LOWER = {name.lower(): name for name in KNOWN}
_ANY = _LOWER | {name.lower(): name for name in OF_STREAMING}
_STARTS = ("startid", "starttime", "startingoffsets", "startingtimestamp", "startinggroup")
_ENDS = ("endid", "endtime", "endingoffsets", "endingtimestamp")
_OF_TABLE = "option."
_WILD = "*?["
_LEASE = " (it is renewed while tasks read: more is not needed)"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is to be read; all streams of the stores without a name or a pattern."""

    places: tuple[str, ...]  # the stores
    streams: tuple[str, ...]
    start: StreamID
    end: StreamID
    min_partitions: int | None
    pin_ms: int
    mode: str
    corrupt: str  # the name of the column for malformed records
    snapshot_dir: str  # empty: the store itself
    patterns: tuple[str, ...] = ()  # of names, beside ``streams``
    starts: Offsets = EVERY  # of some streams, instead of ``start``
    ends: Offsets = EVERY
    group: str = ""  # whose last delivered IDs are where streams begin
    store_column: str = STORE_COLUMN  # the name of the column for the place of a row's store

    as_of: tuple[str, ...] = ()  # tokens of moments; empty: now
    fail_on_loss: bool = True  # what cannot be read is an error, and is not passed over

    @property
    def path(self) -> str:
        """The store, of what reads one only."""
        return self.places[0]


def parse(options: Mapping[str, str]) -> SourceOptions:
    """The options of a load, checked."""
    given = given_by_user(options)
    _check_known(given)
    if "table" in given:
        raise OptionError("option 'table' is for batch reads: leave it out")
    found = places.stores(given)
    start, starts = _end_of_range(given, _STARTS, parse_start, 0)
    end, ends = _end_of_range(given, _ENDS, parse_end, _U64_MAX)
    if start > end:
        raise OptionError(f"the range is empty: it starts at {start} and ends at {end}")
    hours = _number(given, "pinhours", float, 1 / 3600, PIN_HOURS_MAX, _LEASE) or PIN_HOURS
    mode = given.get("mode", PERMISSIVE).upper()
    if mode not in MODES:
        raise OptionError(f"option 'mode' is {', '.join(MODES)}, not {mode!r}")
    corrupt = given.get("columnnameofcorruptrecord", CORRUPT_RECORD)
    if not corrupt:
        raise OptionError("option 'columnNameOfCorruptRecord' must name a column")
    store_column = given.get("storecolumn", STORE_COLUMN)
    if not store_column or folded(store_column) == folded(corrupt):
        raise OptionError("option 'storeColumn' must name a column of its own")
    names, patterns = _streams(given)
    return SourceOptions(
        found,
        names,
        start,
        end,
        _number(given, "minpartitions", int, 1, PARTITIONS_MAX),
        int(hours * 3_600_000),
        mode,
        corrupt,
        directory(given, "snapshotdir") if "snapshotdir" in given else "",
        patterns,
        starts,
        ends,
        given.get("startinggroup", ""),
        store_column,
        _moments(given),
        _flag(given, "failondataloss", default=True),
    )


def _moments(given: Mapping[str, str]) -> tuple[str, ...]:
    """The tokens of 'asOf', one for each store."""
    if "asof" not in given:
        return ()
    tokens = tuple(token.strip() for token in given["asof"].split(","))
    if not all(pinfile.is_id(token) for token in tokens):
        raise OptionError(
            f"option 'asOf' takes what store.moment() gave, with commas between those of several "
            f"stores: {given['asof']!r}"
        )
    if "startinggroup" in given:
        raise OptionError("give 'asOf' or 'startingGroup': a moment does not keep groups")
    return tokens


def is_table(options: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being created."""
    return {"provider", "location"} <= {key.lower() for key in options}


def given_by_user(options: Mapping[str, str]) -> dict[str, str]:
    """The options without what Spark adds to them: of a table, its properties and owner."""
    lower = {key.lower(): value for key, value in options.items()}
    if not is_table(lower):
        return lower
    own = {
        key.removeprefix(_OF_TABLE): value
        for key, value in lower.items()
        if key.startswith(_OF_TABLE)
    }
    return {"path": lower.get("path", lower["location"]), **own}


def shown(key: str) -> str:
    """An option as it is written, and not as Spark hands it over."""
    return _ANY.get(key, key)


def _check_known(given: Mapping[str, str]) -> None:
    for key in given:
        if key in _LOWER or key == places.PATHS:
            continue
        if key in _ANY:
            raise OptionError(
                f"option {shown(key)!r} is for streaming queries, spark.readStream: leave it out"
            )
        near = difflib.get_close_matches(key, _ANY, 1)
        hint = f"did you mean {shown(near[0])!r}? " if near else ""
        raise OptionError(
            f"no option {key!r}; {hint}There are {', '.join(KNOWN)}; and for streaming queries "
            f"{', '.join(OF_STREAMING)}"
        )


def directory(given: Mapping[str, str], key: str) -> str:
    """The local directory that an option names, absolute; OptionError."""
    text = given.get(key, "")
    if not text:
        raise OptionError(f"option '{_LOWER[key]}' is missing: give a directory")
    return places.local(text, _LOWER[key])


def _streams(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names, and patterns of names; neither: all streams."""
    one, several = given.get("stream"), given.get("streams")
    if (one is None) == (several is None):
        raise OptionError(
            "give either option 'stream', a name, or 'streams', names with commas between them "
            "('*' for all streams)"
        )
    if one is not None:
        return (one,), ()
    assert several is not None
    names = [name.strip() for name in several.split(",")]
    if names == ["*"]:
        return (), ()
    if not all(names) or len(set(names)) != len(names):
        raise OptionError(f"option 'streams' has an empty name, or a name twice: {several!r}")
    patterns = tuple(name for name in names if any(each in name for each in _WILD))
    return tuple(name for name in names if name not in patterns), patterns


def _end_of_range(
    given: Mapping[str, str],
    keys: Sequence[str],
    parse_text: Callable[[str], StreamID],
    seq: int,
) -> tuple[StreamID, Offsets]:
    """The first or the last ID of all streams, and those of some; by one of the options at most."""
    start = keys is _STARTS
    anywhere = ZERO_ID if start else MAX_ID
    some = [key for key in keys if key in given]
    if len(some) > 1:
        names = " or ".join(f"'{_LOWER[key]}'" for key in some)
        raise OptionError(f"give {names}: one of them, not {len(some)}")
    if not some:
        return anywhere, EVERY
    key, name, text = some[0], _LOWER[some[0]], given[some[0]]
    if key.endswith("id"):
        try:
            return parse_text(text), EVERY
        except InvalidIDError as error:
            raise OptionError(f"option '{name}': {error}") from None
    if key.endswith("offsets"):
        found = offsets.parse(name, text, start=start)
        return (anywhere if found.every is None else found.every), found
    if key.endswith("group"):
        if not text:
            raise OptionError(f"option '{name}' must name a consumer group")
        return anywhere, EVERY
    return StreamID(_time_ms(name, text), seq), EVERY


def _time_ms(name: str, text: str) -> int:
    """Milliseconds, or ISO 8601 with a time zone."""
    if text.isascii() and text.isdigit() and int(text) <= _U64_MAX:
        return int(text)
    try:
        return datetime_ms(datetime.fromisoformat(text))
    except (ValueError, InvalidIDError) as error:
        raise OptionError(
            f"option '{name}' must be milliseconds since 1970 or ISO 8601 with a time zone, such "
            f"as 2013-07-01T00:00:00Z: {text!r} ({error})"
        ) from None


def _flag(given: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = given.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option '{_LOWER[key]}' is true or false, not {text!r}")
    return text == "true"


def _number(
    given: Mapping[str, str],
    key: str,
    kind: Callable[[str], T],
    least: float,
    most: float,
    hint: str = "",
) -> T | None:
    if key not in given:
        return None
    try:
        number = kind(given[key])
    except ValueError:
        number = None
    if number is None or not least <= number <= most:  # type: ignore[operator]
        raise OptionError(
            f"option '{_LOWER[key]}' must be a number from {least:g} to {most:g}{hint}: "
            f"{given[key]!r}"
        )
    return number
