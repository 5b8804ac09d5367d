"""Options of the Spark source and sinks, checked before anything is read or written.

Spark hands keys over in lower case and values as text. A batch read begins and ends at an ID, at a
time, or at offsets: a word or an ID for all streams, or JSON with one for each. What begins at an
offset begins behind it, and what ends at an offset ends with it: so a read that begins where
another one ended has each entry once. A streaming query begins at offsets, or at a time that stays
the same when it is started again.

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
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from logstore.clock import SECONDS_MAX, SYSTEM_CLOCK
from logstore.errors import InvalidIDError, NotAStoreError, OptionError
from logstore.fs import LOCAL
from logstore.ids import (
    MAX_ID,
    U64_MAX,
    ZERO_ID,
    StreamID,
    parse_end,
    parse_id,
    parse_start,
    since_id,
    until_id,
)
from logstore.log import file_names, pinfile, storefile
from logstore.log.pinfile import Pin
from logstore.log.shipped import is_shipped
from logstore.options import StoreLimits
from logstore.scan.intake import StreamTyping
from logstore.schema.stream_schema import folded
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
    "typedColumns",
    "reader",
)
OF_STREAM_READ = ("maxRowsPerTrigger", "maxBytesPerTrigger", "progressGroup")
OF_WRITE = ("path", "stream", "create", "idColumn", "ifExists", "producer", "checkpointLocation")
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)
APPEND, ERROR, IGNORE = "append", "error", "ignore"  # of ifExists
EARLIEST, LATEST = "earliest", "latest"
AUTO, JVM, PYTHON = "auto", "jvm", "python"  # of reader
CORRUPT_RECORD = "_corrupt_record"
STORE_COLUMN = "store"
PIN_HOURS = PIN_HOURS_MAX = 1.0
PARTITIONS_MAX = 100_000
LIMIT_MAX = 2**62
U64_DIGITS = len(str(U64_MAX))
_READ = {name.lower(): name for name in OF_READ}
_STREAM_READ = {name.lower(): name for name in ("startingOffsets", *OF_STREAM_READ)}
_WRITE = {name.lower(): name for name in OF_WRITE}
_STARTS = ("startid", "starttime", "startingoffsets", "startingtimestamp", "startinggroup")
_ENDS = ("endid", "endtime", "endingoffsets", "endingtimestamp")
_STREAM_STARTS = ("startingoffsets", "starttime", "startingtimestamp")
_BATCH_READ_ONLY = {*_STARTS, *_ENDS, "snapshotdir", "asof"}.difference(_STREAM_STARTS)
_ADDED_BY_SPARK = ("queryname", "outputmode")  # DataStreamWriter may hand these over
_TABLE_PREFIX = "option."
_WILDCARDS = "*?["
_NUMBERED_MS = 10_000_000  # below it, IDs that a test or an import numbered; above, a mistake
_LEASE = " (it is renewed while tasks read: more is not needed)"
_FOR_STREAMING = "which is for streaming queries, spark.readStream"
# What other sources of Spark call it, and what to give here.
_OF_OTHERS = {
    "subscribe": "'streams', names with commas between them",
    "subscribePattern": "'streams', with a pattern such as race:* (no regular expression)",
    "assign": "'streams', names with commas between them",
    "topic": "'stream', or 'streams' for several",
    "kafka.bootstrap.servers": "'path', the directory of the store",
    "kafka.group.id": "'startingGroup', or 'progressGroup' in a streaming query",
    "startingOffsetsByTimestamp": "'startingTimestamp'",
    "endingOffsetsByTimestamp": "'endingTimestamp'",
    "maxOffsetsPerTrigger": f"'maxRowsPerTrigger', {_FOR_STREAMING}",
    "maxFilesPerTrigger": f"'maxRowsPerTrigger', {_FOR_STREAMING}",
}
_OF_OTHER_SINKS = {
    "topic": "'stream', or a column 'stream'",
    "streams": "'stream', or a column 'stream' that says it row by row",
    "kafka.bootstrap.servers": "'path', the directory of the store",
    "mode": "it to the writer, as in .mode('append')",
}

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
    """Whether one of these options is for streaming reads only, or its value is."""
    if any(key in _STREAM_READ and key not in _READ for key in given):
        return True
    return not _BATCH_READ_ONLY & given.keys() and _is_at_latest(given.get("startingoffsets", ""))


def of_load(given: dict[str, str], of_table: dict[str, str]) -> dict[str, str]:
    """The options of a read: those that were given, or else those kept in a table's schema. The
    reader in the JVM hands a table's read over with its choice of the reader alone."""
    return given if given.keys() - {"reader"} else of_table | given


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
    if not _is_json(text):
        return Offsets(_offset_id(option, text, start=start))
    named = [
        (name, _offset_id(option, value, start=start)) for name, value in _members(option, text)
    ]
    return Offsets(None, tuple(named))


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _members(option: str, text: str) -> list[tuple[str, str]]:
    """The offsets of JSON by stream."""
    try:
        found: list[tuple[str, object]] = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option {option!r} is no JSON object of offsets: {error}") from None
    members: list[tuple[str, str]] = []
    for name, value in found:
        if not isinstance(value, str):
            raise OptionError(f"option {option!r}: the offset of {name!r} must be text: {value!r}")
        members.append((name, value))
    return members


def _is_at_latest(text: str) -> bool:
    """Whether the value of 'startingOffsets' is, or names, the end of a stream."""
    if not _is_json(text):
        return text == LATEST
    try:
        return any(offset == LATEST for _, offset in _members("startingOffsets", text))
    except OptionError:
        return False


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


def check_offsets(option: str, named: Collection[str], names: Collection[bytes]) -> None:
    """OptionError for an offset of a stream that is not read."""
    known = {shown_name(name) for name in names} if named else set()
    for name in named:
        if name not in known:
            _refuse_offset(option, name)


def _refuse_offset(option: str, name: str) -> NoReturn:
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
    typed: bool = True  # without a schema there are the columns of the one kept with the streams
    reader: str = AUTO  # which of the two is to read

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
    start, starts = _range_end(given, _STARTS, parse_start)
    end, ends = _range_end(given, _ENDS, parse_end)
    # From the offset where another read ended there may be nothing new, which is no mistake.
    if start > end and not ("startingoffsets" in given and start.previous() == end):
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
        _flag(given, "typedcolumns", default=True),
        _reader(given),
    )


def _reader(given: Mapping[str, str]) -> str:
    found = given.get("reader", AUTO).lower()
    if found not in (AUTO, JVM, PYTHON):
        raise OptionError(f"option 'reader' is {AUTO}, {JVM} or {PYTHON}, not {given['reader']!r}")
    return found


def _check_known(given: Mapping[str, str]) -> None:
    for key in given:
        if key in _READ or key == store_paths.PATHS:
            continue
        if key in _STREAM_READ:
            raise OptionError(
                f"option {as_written(key)!r} is for streaming queries, spark.readStream: leave it "
                "out"
            )
        _refuse_other(key, _OF_OTHERS)
        known = f"{', '.join(OF_READ)}; and for streaming queries {', '.join(OF_STREAM_READ)}"
        raise _unknown(f"no option {key!r}", key, _READ | _STREAM_READ, known)


def _refuse_other(key: str, others: Mapping[str, str]) -> None:
    """OptionError for an option of another source or sink, with what to give here."""
    for name, advice in others.items():
        if key == name.lower():
            raise OptionError(f"no option {name!r}: give {advice}")


def _unknown(what: str, key: str, names: Mapping[str, str], known: str) -> OptionError:
    near = difflib.get_close_matches(key, names, 1)
    hint = f"did you mean {names[near[0]]!r}? There" if near else "there"
    return OptionError(f"{what}; {hint} are {known}")


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
) -> tuple[StreamID, Offsets]:
    """The first or the last ID of all streams, and those of some; at most one option says it."""
    start = keys is _STARTS
    anywhere = ZERO_ID if start else MAX_ID
    some = _check_one(given, keys)
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
    return _moment_id(name, text, start=start), EVERY


def _check_one(given: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """Which of these options is given; OptionError for several."""
    some = [key for key in keys if key in given]
    if len(some) > 1:
        names = " or ".join(f"'{_READ[key]}'" for key in some)
        raise OptionError(f"give {names}: one of them, not {len(some)}")
    return some


def _moment_id(name: str, text: str, *, start: bool) -> StreamID:
    """The first or the last ID of a time: milliseconds, or a moment as `range` takes it."""
    number = _digits(text)
    if number is not None:
        _check_ms(name, number)
        return StreamID(number, 0 if start else U64_MAX)
    try:
        return (since_id if start else until_id)(text, SYSTEM_CLOCK.now_ms())
    except OptionError:
        raise OptionError(
            f"option '{name}' must be milliseconds since 1970, a time such as "
            "2013-07-01T00:00:00Z, a day such as 2013-07-01, or how long ago, such as -1h: "
            f"{text!r}"
        ) from None


def _digits(text: str) -> int | None:
    """The number that digits are; None for other text, and for what no 64 bits hold."""
    if not (text.isascii() and text.isdigit() and len(text) <= U64_DIGITS):
        return None
    number = int(text)
    return number if number <= U64_MAX else None


def _check_ms(name: str, number: int) -> None:
    """OptionError for a number that is seconds, or a day without its dashes."""
    if not _NUMBERED_MS <= number < SECONDS_MAX:
        return
    read, meant = StreamID(number, 0).time, StreamID(number * 1000, 0).time
    other = "startId" if name.lower().startswith("start") else "endId"
    raise OptionError(
        f"option '{name}' is milliseconds since 1970, and {number} of them are {_utc(read)}: if "
        f"these are seconds, write {number}000 or {_utc(meant)}; a day is written as 2013-07-01. "
        f"(IDs of so early a time are given as '{other}')"
    )


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _flag(given: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = given.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option '{(_READ | _WRITE)[key]}' is true or false, not {text!r}")
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
    start: StreamID | None  # the ID behind which streams begin; None: their end
    starts: dict[str, StreamID | None]  # of some streams, instead of ``start``
    max_rows: int
    max_bytes: int
    progress_group: str  # empty: none

    @property
    def fail_on_loss(self) -> bool:
        """Whether entries that went before they were read are an error."""
        return self.source.fail_on_loss

    def begins_at_end(self, name: str) -> bool:
        """Whether a stream that is there when the query begins is read from its end on."""
        return self.starts.get(name, self.start) is None

    def after(self, name: str) -> StreamID:
        """The ID behind which a stream that has no offset yet begins."""
        found = self.starts.get(name, self.start)
        return ZERO_ID if found is None else found


def parse_stream_read(options: Mapping[str, str]) -> StreamOptions:
    """The options of a streaming read, checked."""
    given = given_by_user(options)
    for key in _BATCH_READ_ONLY & given.keys():
        raise OptionError(
            f"option {as_written(key)!r} is for batch reads: give 'startingOffsets', and filter "
            "what you read"
        )
    _check_one(given, _STREAM_STARTS)
    own = {key: given.pop(key) for key in _STREAM_READ if key in given}
    if store_paths.several(given):
        raise OptionError("a streaming query reads one store: give its directory as option 'path'")
    if "progressgroup" in own and not own["progressgroup"]:
        raise OptionError("option 'progressGroup' must name a consumer group")
    source = parse_read(given)
    if is_shipped(path_of(source.path)):
        raise OptionError(
            "a streaming query reads the store itself: what was shipped stays as it was published"
        )
    start, starts = _stream_start(given, own.get("startingoffsets", EARLIEST), source)
    return StreamOptions(
        source,
        start,
        starts,
        _batch_limit(own, "maxrowspertrigger"),
        _batch_limit(own, "maxbytespertrigger"),
        own.get("progressgroup", ""),
    )


def _stream_start(
    given: Mapping[str, str], offsets: str, source: SourceOptions
) -> tuple[StreamID | None, dict[str, StreamID | None]]:
    """Behind which IDs a new query begins: all of its streams, and some (None: their ends)."""
    for key in ("starttime", "startingtimestamp"):
        if given.get(key, "").startswith("-"):
            raise OptionError(
                f"option '{_READ[key]}' of a streaming query must say the same whenever it is "
                f"started again: give a time such as 2013-07-01T00:00:00Z, not {given[key]!r}"
            )
    if source.start > ZERO_ID:
        return source.start.previous(), {}
    if not _is_json(offsets):
        return _stream_offset(offsets), {}
    members = _members("startingOffsets", offsets)
    starts = {name: _stream_offset(text) for name, text in members}
    for name in starts:
        if not _is_wanted(name, source):
            _refuse_offset("startingOffsets", name)
    return ZERO_ID, starts


def _stream_offset(text: str) -> StreamID | None:
    if text in (EARLIEST, LATEST):
        return ZERO_ID if text == EARLIEST else None
    try:
        return parse_id(text)
    except InvalidIDError as error:
        raise OptionError(
            f"option 'startingOffsets' is {EARLIEST}, {LATEST}, the ID behind which to begin, or "
            f'JSON such as {{"laps": "{LATEST}", "pits": "5-0"}}: {error}'
        ) from None


def _is_wanted(name: str, source: SourceOptions) -> bool:
    """Whether a stream of this name is read, once it is there."""
    if name in source.streams or not (source.streams or source.patterns):
        return True
    return any(fnmatchcase(name, pattern) for pattern in source.patterns)


def _batch_limit(own: Mapping[str, str], key: str) -> int:
    if key not in own:
        return 0
    number = _digits(own[key])
    if number is None or not 0 < number < LIMIT_MAX:
        raise OptionError(f"option '{_STREAM_READ[key]}' must be a number from 1 on: {own[key]!r}")
    return number


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
    create: bool  # make the store if it is not there


class WriteStage(NamedTuple):
    """Where the tasks of a write put their nodes, and the schemas of streams that have one."""

    pin: Pin
    typed: dict[bytes, StreamTyping]


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
            _refuse_other(key, _OF_OTHER_SINKS)
            raise _unknown(f"no option {key!r} of a write", key, _WRITE, ", ".join(OF_WRITE))
    path, create = _directory(given, "path"), _flag(given, "create", default=True)
    limits = _limits(Path(path), create=create)
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
        limits,
        given.get("stream", ""),
        given.get("idcolumn", ""),
        exists,
        producer,
        given.get("checkpointlocation", ""),
        create,
    )


def _limits(path: Path, *, create: bool) -> StoreLimits:
    """The limits of a store, or those that one will have that is made."""
    try:
        return storefile.read(LOCAL, path).limits
    except NotAStoreError:
        if not create or LOCAL.exists(path / file_names.STORE):
            raise
        return StoreLimits()
