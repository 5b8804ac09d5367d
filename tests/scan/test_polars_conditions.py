"""Prevents a condition of Polars that answers otherwise on a store than on a frame of its rows.

Random conditions are asked of `logstore.polars.scan` and of Polars over all rows, collected. The
seed is printed; LOGSTORE_SEED is one again, LOGSTORE_TORTURE=<times> asks more of them.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import logstore.polars
from logstore.api.store import Store
from tests import seeds
from tests.scan.conditions import INF, NAN
from tests.scan.scanned_stores import make_store

COUNT = 60
EXACT_MAX = 1 << 53
ASKED = 400
BEGIN_MS = 1_700_000_000_000
BEGIN = datetime.fromtimestamp(BEGIN_MS / 1000, UTC)
COLUMNS: dict[str, Any] = {
    "stream": None, "ms": None, "seq": None, "ts": None, "id_key": None, "id": None,
    "speed": pa.float64(), "laps": pa.int64(), "rider": None,
}  # fmt: skip
SPEEDS = ("0.0", "-0.0", "nan", "inf", "1.5", "", "x", "-2")


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("polars") / "store") as store:
        for name in ("race:a", "race:b", "\N{GREEK SMALL LETTER ALPHA}"):
            rows = []
            for n in range(COUNT):
                row: dict[str, Any] = {"rider": f"r{n % 3}", "laps": n % 5, "more": 1}
                if n % 4:
                    row["speed"] = SPEEDS[n % len(SPEEDS)]
                if n % 7 == 0:
                    del row["laps"]
                rows.append(((BEGIN_MS + n, n % 2), row))
            # an ID that no float has; past the year 9999, and past an int64: ts and ms are null
            late = [(EXACT_MAX + 1, 0), (1 << 60, 0), (1 << 63, 0)]
            rows += [(id, {"rider": "late"}) for id in late]
            store.stream(name).add_many(rows)
        yield store


# -- conditions of every kind ----------------------------------------------------------------
Draw = random.Random


def integer(draw: Draw) -> pl.Expr:
    value = draw.choice([BEGIN_MS + draw.randrange(-3, COUNT + 3), 0, -1, 1 << 60, (1 << 63) - 1])
    return draw.choice([pl.lit(value), pl.lit(value), pl.lit(value).cast(pl.UInt64, strict=False),
                        pl.lit(float(value)), pl.lit(NAN), pl.lit(None, pl.Int64),
                        pl.lit(pl.Series([value], dtype=pl.Int64))])  # fmt: skip


def moment(draw: Draw) -> pl.Expr:
    value = BEGIN + timedelta(milliseconds=draw.randrange(-3, COUNT + 3))
    kind = pl.Datetime(draw.choice(["ms", "us", "ns"]), "UTC")
    more = timedelta(microseconds=draw.choice([0, 0, 1]))
    return draw.choice([pl.lit(value + more), pl.lit(value).cast(kind), pl.lit(None, kind),
                        pl.lit(value).dt.offset_by("1ms")])  # fmt: skip


def key(draw: Draw) -> pl.Expr:
    ms = BEGIN_MS + draw.randrange(-3, COUNT + 3)
    return pl.lit(ms.to_bytes(8) + draw.choice([0, 1]).to_bytes(8) + draw.choice([b"", b"\0"]))


def number(draw: Draw) -> pl.Expr:
    return pl.lit(draw.choice([0.0, -0.0, NAN, INF, 1.5, -2.0, None]), pl.Float64)


def name(draw: Draw) -> pl.Expr:
    return pl.lit(draw.choice(["race:a", "race:b", "race", "\N{GREEK SMALL LETTER ALPHA}", "", None]), pl.String)  # fmt: skip  # noqa: E501


OPERANDS: dict[str, Callable[[Draw], pl.Expr]] = {
    "ms": integer, "ts": moment, "id_key": key, "speed": number, "stream": name,
}  # fmt: skip
SIGNS = ("eq", "ne", "lt", "le", "gt", "ge", "eq_missing", "ne_missing")


def comparison(draw: Draw) -> pl.Expr:
    column = draw.choice([*OPERANDS, "ms", "ts", "stream"])
    one, other = pl.col(column), OPERANDS[column](draw)
    if draw.random() < 0.2:
        closed = draw.choice(["both", "left", "right", "none"])
        return one.is_between(other, OPERANDS[column](draw), closed=closed)  # type: ignore[arg-type]
    if draw.random() < 0.3:
        one, other = other, one
    found: pl.Expr = getattr(one, draw.choice(SIGNS))(other)
    return found


ODD: list[Callable[[Draw], pl.Expr]] = [
    lambda draw: pl.col("speed").fill_null(0.0) >= 0,
    lambda draw: pl.col("speed").fill_nan(None).is_null(),
    lambda draw: pl.coalesce(pl.col("laps"), pl.col("seq"), pl.lit(7)) > draw.randrange(5),
    lambda draw: pl.coalesce(comparison(draw), pl.lit(True)),
    lambda draw: pl.when(comparison(draw)).then(comparison(draw)).otherwise(condition(draw, 2)),
    lambda draw: pl.when(comparison(draw)).then(True),
    lambda draw: pl.col("laps").replace({1: 2, 3: None}) == 2,
    lambda draw: pl.col("laps").replace_strict({1: True}, default=draw.choice([None, False])),
    lambda draw: pl.col(draw.choice(list(COLUMNS))).is_null(),
    lambda draw: pl.col(draw.choice(list(COLUMNS))).is_not_null(),
    lambda draw: pl.col("ms").is_in([BEGIN_MS + draw.randrange(COUNT) for _ in range(3)]),
    lambda draw: pl.col("ms").is_in([BEGIN_MS, None], nulls_equal=draw.choice([True, False])),
    lambda draw: pl.col("speed").is_in([NAN, -0.0]),
    lambda draw: pl.col("speed").is_nan(),
    lambda draw: pl.col("stream").str.ends_with(draw.choice(["a", "b", ""])),
    lambda draw: pl.col("id").str.contains("[05]-1$"),
    lambda draw: pl.col("ts").dt.millisecond() % 3 == 0,
    lambda draw: pl.col("ts").dt.truncate("10ms") == pl.lit(BEGIN),
    lambda draw: pl.all_horizontal(comparison(draw), condition(draw, 2)),
    lambda draw: pl.any_horizontal(comparison(draw), condition(draw, 2)),
    lambda draw: comparison(draw).is_null(),
    lambda draw: comparison(draw).fill_null(draw.choice([True, False])),
    lambda draw: comparison(draw) == condition(draw, 2),
    lambda draw: comparison(draw) ^ condition(draw, 2),
    lambda draw: comparison(draw).cast(pl.Int8) < 1,
    lambda draw: (pl.col("ms") + pl.col("seq")) % 2 == 0,
    lambda draw: pl.col("ms") * -1 < -BEGIN_MS - draw.randrange(COUNT),
    lambda draw: pl.col("ms").clip(BEGIN_MS, BEGIN_MS + 9) > BEGIN_MS + draw.randrange(12),
    lambda draw: pl.col("ms").cast(pl.Float64) <= BEGIN_MS + 0.5,
    lambda draw: pl.struct("ms", "seq").struct.field("seq") == 1,
    lambda draw: pl.concat_str("stream", "rider", ignore_nulls=True).str.len_chars() > 7,
    lambda draw: pl.lit(draw.choice([True, False, None]), pl.Boolean),
    lambda draw: pl.col("ms") == pl.col("ms").max().fill_null(0),
    lambda draw: pl.col("ms") - BEGIN_MS < pl.len(),
    lambda draw: pl.col("rider").is_first_distinct(),
    lambda draw: pl.col("laps").cum_sum() > 20,
    lambda draw: pl.col("ms").shift(1).is_null(),
    lambda draw: pl.col("ms").rank() < 9,
    lambda draw: pl.col("ms") == pl.col("ms").min().over("rider"),
]


def condition(draw: Draw, depth: int = 0) -> pl.Expr:
    """A random one; deep ones are comparisons."""
    kind = draw.random()
    if depth > 2 or kind < 0.3:
        return comparison(draw)
    if kind < 0.5:
        return draw.choice(ODD)(draw)
    if kind < 0.6:
        return condition(draw, depth + 1).not_()
    one, other = condition(draw, depth + 1), condition(draw, depth + 1)
    return one & other if kind < 0.8 else one | other


def same(races: Store[bytes], every: pl.DataFrame, asked: pl.Expr, told: str) -> None:
    """The rows are those of Polars over all; where Polars refuses, so it does here."""
    lazy = logstore.polars.scan(races, columns=COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of map_elements, and of comparisons with null
        try:
            wanted: pl.DataFrame | None = every.lazy().filter(asked).collect()
        except pl.exceptions.PolarsError:
            wanted = None
        try:
            found: pl.DataFrame | None = lazy.filter(asked).collect()
        except pl.exceptions.PolarsError:
            found = None
    assert (found is None) == (wanted is None), told
    assert found is None or wanted is None or found.equals(wanted), told


def test_random_conditions_answer_as_those_over_a_frame(races: Store[bytes]) -> None:
    seed = seeds.seed()
    print(f"seed: LOGSTORE_SEED={seed}")
    draw = random.Random(seed)
    every = logstore.polars.scan(races, columns=COLUMNS).collect()
    for at in range(ASKED * int(os.environ.get("LOGSTORE_TORTURE") or 1)):
        asked = condition(draw)
        same(races, every, asked, f"seed {seed}, condition {at}: {asked}")


def test_pushed_down_conditions_keep_every_matching_row(races: Store[bytes]) -> None:
    """Also as a condition stands before Polars makes it simpler: NaN, null and series among it."""
    scan = races.scan(columns=COLUMNS)
    every = scan.to_arrow()
    draw, handed = random.Random(7), 0
    asked = [condition(draw) for _ in range(ASKED)]
    asked += [pl.col("ms") < NAN, pl.lit(pl.DataFrame(every)["ms"]) == pl.col("ms"),
              pl.col("ms") < pl.len() + BEGIN_MS, pl.col("ms") < 1 << 63,
              pl.col("ms") <= float(EXACT_MAX)]  # fmt: skip
    for each in asked:
        known = logstore.polars.pushed(each, scan.schema)
        if known is None:
            continue
        handed += 1
        try:
            wanted = pl.DataFrame(every).filter(each)
        except pl.exceptions.PolarsError:
            continue
        assert pl.DataFrame(every.filter(known)).filter(each).equals(wanted), str(each)
    assert handed > ASKED / 10


@pytest.mark.parametrize("at", range(len(ODD)))
def test_each_odd_condition_reads_all(races: Store[bytes], at: int) -> None:
    """fill_null, coalesce, when/then and replace were an AttributeError."""
    every = logstore.polars.scan(races, columns=COLUMNS).collect()
    draw = random.Random(at)
    for asked in (ODD[at](draw), ODD[at](draw) & comparison(draw), ~ODD[at](draw)):
        same(races, every, asked, str(asked))


@pytest.mark.parametrize("asked", [
    pl.col("ms").cast(pl.UInt64) > BEGIN_MS,
    pl.col("ms") >= 1 << 63,
    pl.col("id_key") == b"",
], ids=str)  # fmt: skip
def test_columns_of_other_types_are_compared_as_they_are(
    races: Store[bytes], asked: pl.Expr
) -> None:
    columns = {"ms": pa.uint64(), "id_key": None, "seq": pa.decimal128(20, 0)}
    lazy = logstore.polars.scan(races, "race:*", columns=columns)
    assert lazy.filter(asked).collect().equals(lazy.collect().filter(asked))
