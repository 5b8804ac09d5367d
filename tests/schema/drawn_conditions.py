"""Conditions over columns of each type, in our language and in DuckDB's, drawn by hypothesis."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import strategies as st

BEGIN_MS = 1_700_000_000_000


class ColumnCase(NamedTuple):
    """A type of a schema and of DuckDB, values, and literals as ours and as DuckDB's."""

    kind: str
    sql: str
    values: st.SearchStrategy[Any]
    literals: st.SearchStrategy[str]


def quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


DAYS = st.dates(date(2026, 1, 1), date(2026, 1, 5))
MOMENTS = DAYS.map(lambda day: datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
TIMES = st.sampled_from([time(0), time(12, 30), time(12, 30, 0, 1), time(23, 59, 59)])
LETTERS = st.text("ab%_!é\n", max_size=3)
SMALL = st.integers(-3, 3)
HALVES = st.integers(-6, 6).map(lambda each: f"{each / 2}")
LEVELS = st.sampled_from(["low", "high"])
REFS = st.integers(0, 3).map(lambda each: UUID(int=each << 126 | each))
COLUMNS = {
    "flag": ColumnCase("bool", "boolean", st.booleans(), st.sampled_from(["true", "FALSE"])),
    "small": ColumnCase("int", "integer", SMALL, HALVES | st.just("99999999999")),
    "large": ColumnCase("long", "bigint", SMALL.map(lambda each: each * 2**61), st.sampled_from(
        ["-9223372036854775808", "0", "0.5", "2305843009213693952", "99999999999999999999"])),
    "temp": ColumnCase("double", "double", st.sampled_from(
        [0.0, -0.0, 0.1, 1.5, -2.0, math.nan, math.inf, -math.inf]), HALVES | st.just("0.1")
        | st.just("'nan'")),
    "price": ColumnCase("decimal(6, 2)", "decimal(6, 2)", SMALL.map(lambda each: Decimal(each) / 4),
                        HALVES | st.sampled_from(["0.255", "123456.7", "0.25"])),
    "note": ColumnCase("string", "varchar", LETTERS, LETTERS.map(quoted)),
    "raw": ColumnCase("binary", "blob", st.sampled_from([b"", b"a", b"ab", b"\xff"]),
                      st.sampled_from(["'a'", "'ab'", "''"])),
    "day": ColumnCase("date", "date", DAYS, DAYS.map(lambda day: f"date '{day}'")),
    "moment": ColumnCase("timestamp", "timestamptz", MOMENTS, MOMENTS.map(
        lambda at: f"timestamp '{at.isoformat(' ')}'") | DAYS.map(quoted)),
    "clock": ColumnCase("time", "time", TIMES, TIMES.map(lambda each: f"time '{each}'")),
    "ref": ColumnCase("uuid", "uuid", REFS, REFS.map(quoted)),
    "level": ColumnCase("enum('low', 'high')", "varchar", LEVELS, LEVELS.map(quoted)),
}  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | SMALL | st.sampled_from([0.5, 1e300]) | LETTERS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
PATHS = st.sampled_from([("tags.a", "$.a"), ("tags.a.b", "$.a.b"), ("tags.a[0]", "$.a[0]"),
                         ("tags[1]", "$[1]"), ('tags."b"', "$.b")])  # fmt: skip
SIGNS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])


class Said(NamedTuple):
    """A condition in our language and in DuckDB's."""

    ours: str
    sql: str


@st.composite
def compared(
    draw: st.DrawFn, name: str, sql: str, literals: st.SearchStrategy[str], *, nulls: bool = True
) -> Said:
    """A test of a column."""
    forms = ["sign", "sign", "between", "in", "mirrored", *["null"] * nulls]
    form = draw(st.sampled_from(forms))
    negation = draw(st.sampled_from(["", "not "]))
    one, other, third = draw(literals), draw(literals), draw(literals)
    if form == "sign":
        found = f"{draw(SIGNS)} {one}"
    elif form == "mirrored":
        sign = draw(SIGNS)
        return Said(f"{one} {sign} {name}", sql_of(f"{one} {sign} {sql}"))
    elif form == "between":
        found = f"{negation}between {one} and {other}"
    elif form == "in":
        found = f"{negation}in ({', '.join([one, other, third][: draw(st.integers(1, 3))])})"
        if draw(st.integers(0, 4)) == 0:
            found = f"{found[:-1]}, null)"
    else:
        found = f"is {negation}null"
    return Said(f"{name} {found}", sql_of(f"{sql} {found}"))


def sql_of(text: str) -> str:
    """As DuckDB has it, where a timestamp has no zone unless it is told."""
    return text.replace("timestamp '", "timestamptz '")


@st.composite
def like(draw: st.DrawFn, name: str, sql: str) -> Said:
    pattern = draw(st.text("ab%_é", max_size=4))
    found = draw(st.sampled_from(["like", "not like"]))
    if draw(st.booleans()):
        pattern = pattern.replace("%", "!%", 1) + "!_"
        found = f"{found} {quoted(pattern)} escape '!'"
    else:
        found = f"{found} {quoted(pattern)}"
    return Said(f"{name} {found}", f"{sql} {found}")


@st.composite
def in_json(draw: st.DrawFn) -> Said:
    """A test of what stands in the column ``tags``."""
    ours, path = draw(PATHS)
    kind = f"json_type(tags, '{path}')"
    text = f"json_extract_string(tags, '{path}')"
    of_text = f"(case when {kind} = 'VARCHAR' then {text} end)"
    numbers = "('BIGINT', 'UBIGINT', 'DOUBLE')"
    of_number = f"(case when {kind} in {numbers} then cast({text} as double) end)"
    of_bool = f"(case when {kind} = 'BOOLEAN' then cast({text} as boolean) end)"
    form = draw(st.integers(0, 4))
    if form == 0:
        return draw(compared(ours, of_number, HALVES, nulls=False))
    if form == 1:
        return draw(compared(ours, of_text, LETTERS.map(quoted), nulls=False))
    if form == 2:
        return draw(compared(ours, of_bool, st.sampled_from(["true", "false"]), nulls=False))
    if form == 3:
        return draw(like(ours, of_text))
    negation = draw(st.sampled_from(["", "not "]))
    return Said(f"{ours} is {negation}null", f"nullif({kind}, 'NULL') is {negation}null")


@st.composite
def of_ids(draw: st.DrawFn) -> Said:
    """A test of an ID, or of the time that is in it."""
    ms, seq = BEGIN_MS + draw(st.integers(-1, 6)), draw(st.integers(0, 2))
    sign = draw(SIGNS)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms, microseconds=seq)
    return draw(
        st.sampled_from(
            [
                Said(f"id {sign} '{ms}-{seq}'", f"(ms, seq) {sign} ({ms}, {seq})"),
                Said(f"ms {sign} {ms}.5", f"ms {sign} {ms}.5"),
                Said(f"seq {sign} {seq}", f"seq {sign} {seq}"),
                Said(f"ts {sign} timestamp '{moment}'", f"ts {sign} timestamptz '{moment}'"),
                Said(f"id in ('{ms}-{seq}')", f"(ms, seq) = ({ms}, {seq})"),
            ]
        )
    )


def combined(leaves: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    """Tests in and, or, not."""

    def joined(parts: list[Said], word: str) -> Said:
        return Said(*(f" {word} ".join(f"({each[at]})" for each in parts) for at in (0, 1)))

    def more(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
        parts = st.lists(inner, min_size=1, max_size=3)
        return st.builds(joined, parts, st.sampled_from(["and", "or"])) | inner.map(
            lambda each: Said(f"not ({each.ours})", f"not ({each.sql})")
        )

    constants = st.sampled_from(["true", "false", "null"]).map(lambda each: Said(each, each))
    return st.recursive(leaves | leaves | leaves | constants, more, max_leaves=5)
