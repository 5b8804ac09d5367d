"""Arguments of the public face, checked and turned into what the engine takes.

Invariants: everything is refused here, before a lock is taken; a typed error says what to do. Rows
of an iterable are taken a batch at a time, outside every lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, cast

from logstore.codec import Row, RowBatch, codec
from logstore.engine.adds import AUTO, AutoID
from logstore.engine.trims import TrimRule, check_rule
from logstore.errors import (
    EntryTypeError,
    InvalidEntryError,
    InvalidIDError,
    OptionError,
    TooLargeError,
)
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_auto, parse_id
from logstore.options import NAME_MAX_BYTES, seconds


def stream_name(name: str | bytes) -> bytes:
    """A stream's name as bytes, at most 64 KiB."""
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    if not isinstance(name, bytes):
        raise EntryTypeError(f"a stream name is str or bytes, not {type(name).__name__}")
    if len(name) > NAME_MAX_BYTES:
        raise TooLargeError(f"a stream name has at most {NAME_MAX_BYTES} bytes, not {len(name)}")
    return name


def add_id(id: IDLike) -> AutoID | list[StreamID]:
    """The ID of an add: "*", "<ms>-*", or a whole one that is not 0-0."""
    text = id.decode("latin-1") if isinstance(id, bytes) else id
    if text == "*":
        return AUTO
    if isinstance(text, str) and text.endswith("-*"):
        return AutoID(parse_auto(text))
    found = parse_id(id)
    if found == ZERO_ID:
        raise InvalidIDError("The ID specified in XADD must be greater than 0-0")
    return [found]


def trim_rule(
    maxlen: int | None, minid: IDLike | None, max_age: timedelta | float | None, *,
    approximate: bool, limit: int | None, optional: bool,
) -> TrimRule | None:  # fmt: skip
    """The rule of a trim; None if none is asked for and ``optional``."""
    if optional and maxlen is None and minid is None and limit is None:
        return None
    _check_count(maxlen, "maxlen")
    _check_count(limit, "limit")
    age_ms = None if max_age is None else _age_ms(max_age)
    least = None if minid is None else parse_id(minid)
    rule = TrimRule(maxlen, least, approximate, limit, age_ms)
    check_rule(rule)
    return rule


def _check_count(value: object, name: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise OptionError(f"{name} must be an integer: {value!r}")


def _age_ms(max_age: timedelta | float) -> int:
    age = seconds(max_age, "max_age")
    if not 0 <= age < math.inf:
        raise OptionError(f"max_age must be a length of time, not negative: {max_age!r}")
    return int(age * 1000)


def _with_id(row: Any) -> bool:
    return isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], (Mapping, list))


def batches(
    rows: Iterable[Row | tuple[IDLike, Row]], size: int
) -> Iterator[tuple[AutoID | list[StreamID], RowBatch]]:
    """Rows in batches, each with its IDs; rows with and without IDs are never mixed in one call."""
    source = iter(rows)
    while chunk := list(islice(source, size)):
        with_id = _with_id(chunk[0])
        if not with_id:
            yield AUTO, codec().rows(cast("list[Row]", chunk))
            continue
        ids: list[StreamID] = []
        fields: list[Row] = []
        for place, row in enumerate(chunk):
            if not _with_id(row):
                raise InvalidEntryError(
                    f"row {place}: give every row of one call an ID, (id, fields), or none of them"
                )
            id, values = cast("tuple[IDLike, Row]", row)
            ids.append(id if isinstance(id, StreamID) else parse_id(id))
            fields.append(values)
        yield ids, codec().rows(fields)
