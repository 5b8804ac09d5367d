"""Options of the Spark source and sinks, checked before anything is read or written.

Spark hands keys over in lower case and values as text. A batch read begins and ends at an ID, at a
time, or at offsets: a word or an ID for all streams, or JSON with one for each. What begins at an
offset begins behind it, and what ends at an offset ends with it: so a read that begins where
another one ended has each entry once. A streaming query begins at one offset for all of its
streams.

Invariants: an option that is not known, or whose value cannot be, is an OptionError that names it;
so is an offset for a stream that is not read. What is returned is plain data and can be sent
anywhere. Opens nothing but STORE files.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from logstore.clock import SYSTEM_CLOCK
from logstore.errors import InvalidIDError, OptionError
from logstore.fs import LOCAL
from logstore.ids import (
    ID_TEXT_MAX,
    MAX_ID,
    U64_MAX,
    ZERO_ID,
    StreamID,
    moment_span,
    parse_end,
    parse_id,
    parse_start,
)
from logstore.log import pinfile, storefile
from logstore.log.shipped import is_shipped
from logstore.options import StoreLimits
from logstore.scan.scan_columns import folded
from logstore.spark_io import store_paths
from logstore.store_path import path_of
from logstore.tuples import NamedTuple

OF_READ = (
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
OF_STREAM_READ = ("maxRowsPerTrigger", "maxBytesPerTrigger", "progressGroup")
OF_WRITE = ("path", "stream", "idColumn", "ifExists", "producer", "checkpointLocation")
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)
APPEND, ERROR, IGNORE = "append", "error", "ignore"  # of ifExists
EARLIEST, LATEST = "earliest", "latest"
CORRUPT_RECORD = "_corrupt_record"
STORE_COLUMN = "store"
PIN_HOURS = PIN_HOURS_MAX = 1.0
PARTITIONS_MAX = 100_000
LIMIT_MAX = 2**62
_READ = {name.lower(): name for name in OF_READ}
_STREAM_READ = {name.lower(): name for name in ("startingOffsets", *OF_STREAM_READ)}
_WRITE = {name.lower(): name for name in OF_WRITE}
_STARTS = ("startid", "starttime", "startingoffsets", "startingtimestamp", "startinggroup")
_ENDS = ("endid", "endtime", "endingoffsets", "endingtimestamp")
_BATCH_READ_ONLY = {*_STARTS, *_ENDS, "snapshotdir", "asof"} - {"startingoffsets"}
_ADDED_BY_SPARK = ("queryname", "outputmode")  # DataStreamWriter may hand these over
_TABLE_PREFIX = "option."
_WILDCARDS = "*?["
_LEASE = " (it is renewed while tasks read: more is not needed)"

Range: TypeAlias = tuple[StreamID, StreamID]
T = TypeVar("T")


# -- what Spark hands over --------------------------------------------------------------------
def is_table(options: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being created."""
    return {"provider", "location"} <= {key.lower() for key in options}


def given_by_user(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those that Spark adds: of a table, its properties and owner."""
    lower = {key.lower(): value for key, value in options.items()}
    if not is_table(lower):
        return lower
    own = {
        key.removeprefix(_TABLE_PREFIX): value
        for key, value in lower.items()
        if key.startswith(_TABLE_PREFIX)
    }
    return {"path": lower.get("path", lower["location"]), **own}


def as_written(key: str) -> str:
    """The name of a read's option as a user writes it, not in lower case as Spark has it."""
    return (_READ | _STREAM_READ).get(key, key)


def is_stream_read(given: Mapping[str, str]) -> bool:
    """Whether one of these options is for streaming reads only."""
    return any(key in _STREAM_READ and key not in _READ for key in given)


def written_of_table(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a table that say where rows are written; the others are about reading."""
    return {key: value for key, value in options.items() if key in ("path", "stream")}


# -- offsets of batch reads -------------------------------------------------------------------
class Offsets(NamedTuple):
    """One end of a range: for all streams, or by name for some; None: there is no such option."""

    every: StreamID | None = None
    named: tuple[tuple[str, StreamID], ...] = ()


EVERY = Offsets()


def parse_offsets(option: str, text: str, *, start: bool) -> Offsets:
    """The value of 'startingOffsets' or 'endingOffsets'."""
    if not text.lstrip().startswith("{"):
        return Offsets(_offset_id(option, text, start=start))
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise OptionError(f"option {option!r} is no JSON object of offsets: {error}") from None
    named: list[tuple[str, StreamID]] = []
    for name, value in found:
        if not isinstance(value, str):
            raise OptionError(f"option {option!r}: the offset of {name!r} must be text: {value!r}")
        named.append((name, _offset_id(option, value, start=start)))
    return Offsets(None, tuple(named))


def _unique(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The members of a JSON object; ValueError for a name that is there twice."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name!r} is there twice")
        seen.add(name)
    return pairs


def _offset_id(option: str, text: str, *, start: bool) -> StreamID:
    """The first ID that is read, or the last one."""
    allowed = EARLIEST if start else LATEST
    if text == allowed:
        return ZERO_ID if start else MAX_ID
    if text in (EARLIEST, LATEST):
        raise OptionError(f"option {option!r} would leave nothing to read: {text!r}")
    try:
        found = parse_id(text)
    except InvalidIDError as error:
        raise OptionError(
            f"option {option!r} is {allowed}, an ID, or JSON such as "
            f'{{"laps": "{allowed}", "pits": "5-0"}}: {error}'
        ) from None
    if start and found == MAX_ID:
        raise OptionError(f"option {option!r} would leave nothing to read: {text!r}")
    return found.next() if start else found


def check_offsets(option: str, offsets: Offsets, names: Collection[bytes]) -> None:
    """OptionError for an offset of a stream that is not read."""
    known = {shown_name(name) for name in names} if offsets.named else set()
    for name, _ in offsets.named:
        if name not in known:
            raise OptionError(
                f"option {option!r} names {name!r}, which is not among the streams that are read"
            )


def shown_name(name: bytes) -> str:
    """The name of a stream in options and tables, with ``\\xff`` for a byte that is not UTF-8."""
    return name.decode("utf-8", "backslashreplace")


def unescaped_name(text: str) -> bytes:
    """The name that `shown_name` shows as this text. A stream may also be called by the text."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda at: bytes.fromhex(at[1].decode()), text.encode())


def ranges(
    names: Sequence[bytes],
    every: Range,
    starts: Offsets,
    ends: Offsets,
    delivered: dict[bytes, StreamID],
) -> dict[Range, list[bytes]]:
    """The streams by their range, without those whose range is empty. ``delivered``: the first ID
    of streams that a group has read."""
    first, last = dict(starts.named), dict(ends.named)
    found: dict[Range, list[bytes]] = {}
    for name in names:
        text = shown_name(name)
        start = delivered.get(name, first.get(text, every[0]))
        end = last.get(text, every[1])
        if start <= end:
            found.setdefault((start, end), []).append(name)
    return found


# -- batch reads ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read. Without a name or a pattern: all streams of the stores."""

    paths: tuple[str, ...]  # the stores: directories or URIs
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
    group: str = ""  # streams begin behind its last delivered IDs
    store_column: str = STORE_COLUMN  # the name of the column for the place of a row's store
    as_of: tuple[str, ...] = ()  # tokens of moments; empty: now
    fail_on_loss: bool = True  # what cannot be read is an error, and is not left out

    @property
    def path(self) -> str:
        """The store, for a reader of one store only."""
        return self.paths[0]


def parse_read(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read, checked."""
    given = given_by_user(options)
    _check_known(given)
    if "table" in given:
        raise OptionError("option 'table' is for batch reads: leave it out")
    found = store_paths.stores(given)
    start, starts = _range_end(given, _STARTS, parse_start, 0)
    end, ends = _range_end(given, _ENDS, parse_end, U64_MAX)
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
        _directory(given, "snapshotdir") if "snapshotdir" in given else "",
        patterns,
        starts,
        ends,
        given.get("startinggroup", ""),
        store_column,
        _moments(given),
        _flag(given, "failondataloss", default=True),
    )


def _check_known(given: Mapping[str, str]) -> None:
    for key in given:
        if key in _READ or key == store_paths.PATHS:
            continue
        if key in _STREAM_READ:
            raise OptionError(
                f"option {as_written(key)!r} is for streaming queries, spark.readStream: leave it "
                "out"
            )
        known = f"{', '.join(OF_READ)}; and for streaming queries {', '.join(OF_STREAM_READ)}"
        raise _unknown(f"no option {key!r}", key, _READ | _STREAM_READ, known)


def _unknown(what: str, key: str, names: Mapping[str, str], known: str) -> OptionError:
    near = difflib.get_close_matches(key, names, 1)
    hint = f"did you mean {names[near[0]]!r}? " if near else ""
    return OptionError(f"{what}; {hint}There are {known}")


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


def _directory(given: Mapping[str, str], key: str) -> str:
    """The local directory that an option names, absolute; OptionError."""
    name = (_READ | _WRITE)[key]
    text = given.get(key, "")
    if not text:
        raise OptionError(f"option '{name}' is missing: give a directory")
    return store_paths.local(text, name)


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
    patterns = tuple(name for name in names if any(each in name for each in _WILDCARDS))
    return tuple(name for name in names if name not in patterns), patterns


def _range_end(
    given: Mapping[str, str],
    keys: Sequence[str],
    parse_text: Callable[[str], StreamID],
    seq: int,
) -> tuple[StreamID, Offsets]:
    """The first or the last ID of all streams, and those of some; at most one option says it."""
    start = keys is _STARTS
    anywhere = ZERO_ID if start else MAX_ID
    some = [key for key in keys if key in given]
    if len(some) > 1:
        names = " or ".join(f"'{_READ[key]}'" for key in some)
        raise OptionError(f"give {names}: one of them, not {len(some)}")
    if not some:
        return anywhere, EVERY
    key, name, text = some[0], _READ[some[0]], given[some[0]]
    if key.endswith("id"):
        try:
            return parse_text(text), EVERY
        except InvalidIDError as error:
            raise OptionError(f"option '{name}': {error}") from None
    if key.endswith("offsets"):
        found = parse_offsets(name, text, start=start)
        return (anywhere if found.every is None else found.every), found
    if key.endswith("group"):
        if not text:
            raise OptionError(f"option '{name}' must name a consumer group")
        return anywhere, EVERY
    first_ms, last_ms = _time_ms(name, text)
    return StreamID(first_ms if start else last_ms, seq), EVERY


def _time_ms(name: str, text: str) -> tuple[int, int]:
    """The first and the last millisecond of a moment, which may be given as milliseconds."""
    if text.isascii() and text.isdigit() and len(text) <= ID_TEXT_MAX and int(text) <= U64_MAX:
        return int(text), int(text)
    try:
        return moment_span(text, SYSTEM_CLOCK.now_ms(), name)
    except OptionError:
        raise OptionError(
            f"option '{name}' must be milliseconds since 1970, ISO 8601 such as "
            f"2013-07-01T00:00:00Z or 2013-07-01, or how long ago, such as 1h: {text!r}"
        ) from None


def _flag(given: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = given.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option '{_READ[key]}' is true or false, not {text!r}")
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
            f"option '{_READ[key]}' must be a number from {least:g} to {most:g}{hint}: "
            f"{given[key]!r}"
        )
    return number


# -- streaming reads --------------------------------------------------------------------------
class StreamOptions(NamedTuple):
    """What a streaming query reads, and how much of it in a batch (0: no limit)."""

    source: SourceOptions
    latest: bool
    after: StreamID  # unless ``latest``: entries above this ID
    max_rows: int
    max_bytes: int
    progress_group: str  # empty: none

    @property
    def fail_on_loss(self) -> bool:
        """Whether entries that went before they were read are an error."""
        return self.source.fail_on_loss


def parse_stream_read(options: Mapping[str, str]) -> StreamOptions:
    """The options of a streaming read, checked."""
    given = given_by_user(options)
    own = {key: given.pop(key) for key in _STREAM_READ if key in given}
    for key in _BATCH_READ_ONLY & given.keys():
        raise OptionError(
            f"option {as_written(key)!r} is for batch reads: give 'startingOffsets', and filter "
            "what you read"
        )
    if store_paths.several(given):
        raise OptionError("a streaming query reads one store: give its directory as option 'path'")
    start = own.get("startingoffsets", EARLIEST)
    after = ZERO_ID
    if start not in (EARLIEST, LATEST):
        try:
            after = parse_id(start)
        except InvalidIDError as error:
            raise OptionError(
                f"option 'startingOffsets' is {EARLIEST}, {LATEST}, or the ID behind which to "
                f"begin: {error}"
            ) from None
    if "progressgroup" in own and not own["progressgroup"]:
        raise OptionError("option 'progressGroup' must name a consumer group")
    source = parse_read(given)
    if is_shipped(path_of(source.path)):
        raise OptionError(
            "a streaming query reads the store itself: what was shipped stays as it was published"
        )
    return StreamOptions(
        source,
        start == LATEST,
        after,
        _batch_limit(own, "maxrowspertrigger"),
        _batch_limit(own, "maxbytespertrigger"),
        own.get("progressgroup", ""),
    )


def _batch_limit(own: Mapping[str, str], key: str) -> int:
    text = own.get(key, "0")
    if not text.isascii() or not text.isdigit() or (key in own and not 0 < int(text) < LIMIT_MAX):
        raise OptionError(f"option '{_STREAM_READ[key]}' must be a number from 1 on: {text!r}")
    return int(text)


# -- writes -----------------------------------------------------------------------------------
class SinkOptions(NamedTuple):
    """Where rows are written. ``stream``: empty if a column names it."""

    path: str
    limits: StoreLimits
    stream: str
    id_column: str
    if_exists: str
    producer: str
    checkpoint: str


def parse_write(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write, checked."""
    given = given_by_user(options)
    if not given:
        raise OptionError(
            "no options: give at least 'path'. (Of a table that was created with columns of its "
            "own Spark hands none over: write a DataFrame instead)"
        )
    for key in given:
        if key not in _WRITE and key not in _ADDED_BY_SPARK:
            raise _unknown(f"no option {key!r} of a write", key, _WRITE, ", ".join(OF_WRITE))
    path = _directory(given, "path")
    store = storefile.read(LOCAL, Path(path))
    exists = given.get("ifexists", APPEND)
    if exists not in (APPEND, ERROR, IGNORE):
        raise OptionError(f"option 'ifExists' is append, error or ignore, not {exists!r}")
    producer = given.get("producer", "")
    if streaming and not producer:
        raise OptionError(
            "option 'producer' is missing: a name of your own for this streaming query, under "
            "which the store remembers its last batch, so that a batch that is repeated is not "
            "written twice"
        )
    if not streaming and producer:
        raise OptionError("option 'producer' is for streaming queries: leave it out")
    if streaming and exists != APPEND:
        raise OptionError("option 'ifExists' is for batch writes: leave it out")
    return SinkOptions(
        path,
        store.limits,
        given.get("stream", ""),
        given.get("idcolumn", ""),
        exists,
        producer,
        given.get("checkpointlocation", ""),
    )
