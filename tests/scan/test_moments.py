"""Prevents moments of tables that come back as other ones from an import, a scan, an export."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.errors import InvalidEntryError, InvalidIDError
from logstore.transfer import export_parquet_file
from tests.tools.commands import invoke, ok
from tests.tools.tables import written

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")
parquet = pytest.importorskip("pyarrow.parquet")

# Seconds since 1970 of moments whose local time has an offset with seconds, or another year.
Y1880, Y1900, Y9999, Y1 = -2_840_140_800, -2_208_988_800, 253_402_300_799, -62_135_596_800
SECONDS = [0, -1, Y1880, Y1900, Y9999, Y1, 1_700_000_000]
TEXTS = [
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59",
    "1880-01-01 00:00:00",
    "1900-01-01 00:00:00",
    "9999-12-31 23:59:59",
    "0001-01-01 00:00:00",
    "2023-11-14 22:13:20",
]
ZONES = [None, "UTC", "America/New_York", "Europe/Amsterdam", "Asia/Tokyo", "+14:00", "-00:44",
         "Pacific/Apia"]  # fmt: skip
# What each unit adds to a second, and how its text ends.
UNITS = {"s": (1, 0, ""), "ms": (1000, 7, ".007"), "us": (1_000_000, 8, ".000008")}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[str]]:
    path = tmp_path_factory.mktemp("moments") / "s"
    with logstore.open(path, sync="os", encoding="utf-8") as opened:
        yield opened


def numbers(array: Any) -> list[int | None]:
    found: list[int | None] = array.cast(pa.int64()).to_pylist()
    return found


def read(store: Store[str], name: str, kind: Any) -> list[int | None]:
    """What a scan with a schema gives of a field `t`."""
    table = pa.table(store.stream(name).scan(columns=["t"], schema={"t": kind}))
    return numbers(table["t"].combine_chunks())


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", ZONES)
def test_a_moment_is_stored_in_utc_and_comes_back(
    store: Store[str], tmp_path: Path, zone: str | None, unit: str
) -> None:
    """Text in local time loses the seconds of an offset, and has years that no reader takes."""
    a_second, more, ending = UNITS[unit]
    given = [second * a_second + more for second in SECONDS]
    kind = pa.timestamp(unit, zone)
    name = f"{zone} {unit}"
    store.stream(name).add_arrow(pa.table({"t": pa.array(given, kind)}))
    told = [entry.fields["t"] for entry in store.stream(name)]
    assert told == [text + ending + ("Z" if zone else "") for text in TEXTS]
    assert read(store, name, kind) == given
    wanted = pa.timestamp("us", "UTC" if zone else None)
    assert read(store, name, wanted) == [each * (1_000_000 // a_second) for each in given]
    file = tmp_path / "out.parquet"
    export_parquet_file(store, file, name, schema={"t": wanted})
    table = parquet.read_table(file)
    assert numbers(table["t"].combine_chunks()) == [
        each * (1_000_000 // a_second) for each in given
    ]


NS = [0, 1, -1, 1_700_000_000_123_456_789, -(2**63) + 1_000_000_000, 2**63 - 1]
NS_TEXTS = [
    "1970-01-01 00:00:00.000000000Z",
    "1970-01-01 00:00:00.000000001Z",
    "1969-12-31 23:59:59.999999999Z",
    "2023-11-14 22:13:20.123456789Z",
    "1677-09-21 00:12:44.145224192Z",
    "2262-04-11 23:47:16.854775807Z",
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Amsterdam", "+05:30"])
def test_nanoseconds_are_kept_and_cut_by_who_reads_less(store: Store[str], zone: str) -> None:
    """A pandas frame has nanoseconds: read as microseconds, every one of them was null."""
    name = f"ns {zone}"
    store.stream(name).add_arrow(pa.table({"t": pa.array(NS, pa.timestamp("ns", zone))}))
    assert [entry.fields["t"] for entry in store.stream(name)] == NS_TEXTS
    assert read(store, name, pa.timestamp("ns", zone)) == NS
    assert read(store, name, pa.timestamp("us", zone)) == [each // 1000 for each in NS]
    assert read(store, name, pa.timestamp("ms", zone)) == [each // 1_000_000 for each in NS]
    assert read(store, name, pa.timestamp("s", zone)) == [each // 1_000_000_000 for each in NS]


def test_a_text_that_is_no_moment_stays_null_beside_finer_ones(store: Store[str]) -> None:
    """Cutting is for digits behind a second only, and changes no other text."""
    stream = store.stream("mixed")
    texts = [
        "1970-01-01 00:00:00.0000019Z", "1970-01-01 00:00:00.0000019", "2.0000019",
        "1970-01-01T00:00:00.000001999+01:00", "1970-01-01", "", "1970-01-01 00:00:00.x",
    ]  # fmt: skip
    stream.add_many([{"t": text} for text in texts])
    hour = -3_600_000_000
    assert read(store, "mixed", pa.timestamp("us", "UTC")) == [1, 1, None, hour + 1, 0, None, None]


DAYS = [date(1, 1, 1), date(1582, 10, 4), date(1970, 1, 1), date(9999, 12, 31)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_days_come_back(store: Store[str], kind: Any) -> None:
    """The first and the last day that text of four digits has."""
    stream = store.stream(str(kind))
    stream.add_arrow(pa.table({"t": pa.array(DAYS, kind)}))
    assert [entry.fields["t"] for entry in stream] == [day.isoformat() for day in DAYS]
    found = pa.table(stream.scan(columns=["t"], schema={"t": pa.date32()}))
    assert found["t"].to_pylist() == DAYS


def test_duckdb_and_polars_see_the_same_moments(store: Store[str]) -> None:
    """Whatever zone a session of DuckDB has, and a frame of Polars is in."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: install the extra")
    pl = pytest.importorskip("polars", reason="polars is not installed: install the extra")
    import logstore.duckdb
    import logstore.polars

    wanted = [Y1880 * 1_000_000, Y9999 * 1_000_000]
    utc = pa.timestamp("us", "UTC")
    frame = pl.from_arrow(pa.table({"t": pa.array(wanted, utc)}))
    store.stream("frames").add_arrow(
        frame.with_columns(pl.col("t").dt.convert_time_zone("Asia/Tokyo"))
    )
    with duckdb.connect() as con:
        con.execute("set timezone = 'America/New_York'")
        logstore.duckdb.attach(con, store, "frames", schema={"t": utc})
        told = con.execute("select epoch_us(t) from frames order by t").fetchall()
    assert [us for (us,) in told] == wanted
    read_back = logstore.polars.scan(store, "frames", schema={"t": utc}).collect()
    assert read_back["t"].dt.epoch("us").to_list() == wanted


REFUSED = [
    (pa.timestamp("s", "Asia/Tokyo"), Y9999 + 1),
    (pa.timestamp("ms"), (Y1 - 1) * 1000),
    (pa.timestamp("us", "America/New_York"), Y1 * 1_000_000 - 1),
    (pa.date32(), 2_932_897),  # 10000-01-01
    (pa.date32(), -719_163),  # the day before 0001-01-01
    (pa.date64(), (Y9999 + 1) * 1000),
]


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=str)
def test_a_moment_without_text_is_refused_with_its_column_and_row(
    store: Store[str], kind: Any, value: int
) -> None:
    """It is named by the number that it has in the whole table, and nothing is added."""
    number = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array([0, None, 0, value, 0], number).cast(kind)
    with pytest.raises(InvalidEntryError, match=r"^row 3: column 'when': .*years 1 to 9999"):
        store.stream("refused").add_arrow(pa.table({"a": [1] * 5, "when": column}))
    assert "refused" not in store


def test_the_milliseconds_of_an_id_are_rounded_down(store: Store[str]) -> None:
    """A timestamp of nanoseconds was refused as an ID for the digits that an ID has not."""
    stream = store.stream("ids")
    ts = pa.array([1, 1_999_999, 1_700_000_000_123_456_789], pa.timestamp("ns", "Asia/Tokyo"))
    stream.add_arrow(pa.table({"ts": ts, "a": [1, 2, 3]}))
    assert [str(entry.id) for entry in stream] == ["0-1", "1-0", "1700000000123-0"]
    with pytest.raises(InvalidIDError, match="row 1: a timestamp is no time of an ID"):
        stream.add_arrow(pa.table({"ts": pa.array([2, -1], pa.timestamp("s")), "a": [1, 2]}))


# -- Parquet's INT96 ----------------------------------------------------------------------------
def int96(path: Path, columns: dict[str, Any]) -> Path:
    """A file with INT96 timestamps, as pyspark writes them by default."""
    parquet.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    return path


def us(values: list[int | None]) -> Any:
    return pa.array(values, pa.timestamp("us"))


def test_int96_beyond_2262_is_the_year_that_it_is(tmp_path: Path) -> None:
    """Nanoseconds of 64 bits wrap around: the year 9999 became 1816."""
    given = [Y9999 * 1_000_000 + 999_999, None, Y1 * 1_000_000, 1]
    nested = pa.array([[each] for each in given], pa.list_(pa.timestamp("us")))
    maps = pa.array([[("k", each)] for each in given], pa.map_(pa.string(), pa.timestamp("us")))
    file = int96(tmp_path / "a.parquet", {"t": us(given), "n": nested, "m": maps})
    ok("import", tmp_path / "s", file, "--stream", "s", "--schema", "none")
    wanted = [
        "9999-12-31 23:59:59.999999", None, "0001-01-01 00:00:00.000000",
        "1970-01-01 00:00:00.000001",
    ]  # fmt: skip
    with logstore.open(tmp_path / "s", encoding="utf-8") as opened:
        entries = list(opened.stream("s"))
        assert [entry.fields.get("t") for entry in entries] == wanted
        texts = [f'"{each}"' if each else "null" for each in wanted]
        assert [entry.fields["n"] for entry in entries] == [f"[{each}]" for each in texts]
        assert [entry.fields["m"] for entry in entries] == [f'{{"k":{each}}}' for each in texts]
        kind = pa.timestamp("us")
        assert read(opened, "s", kind) == given


def test_int96_of_nanoseconds_keeps_them(tmp_path: Path) -> None:
    """Microseconds for all files would cut what pandas, Hive and Impala write."""
    ns = pa.array([1, 1_700_000_000_123_456_789], pa.timestamp("ns"))
    file = int96(tmp_path / "a.parquet", {"t": ns})
    ok("import", tmp_path / "s", file, "--stream", "s", "--schema", "none")
    with logstore.open(tmp_path / "s", encoding="utf-8") as opened:
        assert [entry.fields["t"] for entry in opened.stream("s")] == [
            "1970-01-01 00:00:00.000000001", "2023-11-14 22:13:20.123456789",
        ]  # fmt: skip


def odd_int96(path: Path, day: int, nanoseconds: int) -> Path:
    """A file whose second row has this day (Julian) and these nanoseconds, which no writer writes,
    in the columns `when` and `lists`."""
    kept = us([0, 86_400_000_000 + 77, 0])
    lists = pa.array([[0], [0, 86_400_000_000 + 77], []], pa.list_(pa.timestamp("us")))
    table = pa.table({"when": kept, "lists": lists})
    parquet.write_table(
        table, path, use_deprecated_int96_timestamps=True, use_dictionary=False,
        compression="none", write_statistics=False,
    )  # fmt: skip
    data = path.read_bytes()
    found = int96_bytes(2_440_589, 77_000)
    assert data.count(found) == 2
    path.write_bytes(data.replace(found, int96_bytes(day, nanoseconds)))
    return path


def int96_bytes(day: int, nanoseconds: int) -> bytes:
    return nanoseconds.to_bytes(8, "little", signed=True) + day.to_bytes(4, "little")


JULIAN_1970 = 2_440_588
HOSTILE = [
    (JULIAN_1970 + 2_932_897, 0),  # 10000-01-01
    (JULIAN_1970 - 719_163, 0),  # before the year 1
    (2**32 - 1, 0),  # wraps around in microseconds, too
    (JULIAN_1970 + 213_503_982 + 1, 0),  # of which microseconds are about those of 1970
]


@pytest.mark.parametrize(("day", "nanoseconds"), HOSTILE)
def test_int96_that_is_no_moment_is_refused(tmp_path: Path, day: int, nanoseconds: int) -> None:
    """pyarrow wraps it around to a moment that looks right."""
    file = odd_int96(tmp_path / "a.parquet", day, nanoseconds)
    done = invoke("import", tmp_path / "s", file, "--stream", "s")
    assert done.exit_code == 1
    assert "row 2: column 'when': an INT96 timestamp is not in the years 1 to 9999" in done.stderr
    if (tmp_path / "s").exists():
        with logstore.open(tmp_path / "s") as opened:
            assert opened.streams() == []


def test_int96_of_nanoseconds_beside_far_years_is_refused(tmp_path: Path) -> None:
    """Neither unit holds both, and cutting one would be in silence."""
    file = int96(tmp_path / "a.parquet", {
        "far": us([0, 0, Y9999 * 1_000_000]), "fine": pa.array([1000, 1001, 0], pa.timestamp("ns")),
    })  # fmt: skip
    done = invoke("import", tmp_path / "s", file, "--stream", "s")
    assert done.exit_code == 1
    assert "row 2: column 'fine': an INT96 timestamp of nanoseconds" in done.stderr
    assert "TIMESTAMP_MICROS" in done.stderr


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[0], [Y9999 + 1]], pa.list_(pa.timestamp("s", "Asia/Tokyo"))),
        pa.array([[0], [1 << 30]], pa.list_(pa.date32())),
        pa.array([0, Y9999 + 1], pa.timestamp("s", "Asia/Tokyo")),
    ],
    ids=lambda each: str(each.type),
)
def test_the_import_names_column_and_row(tmp_path: Path, column: Any) -> None:
    """Whatever the column is, plain or nested."""
    file = written(tmp_path / "a.arrow", pa.table({"a": [1, 2], "when": column}))
    done = invoke("import", tmp_path / "s", file, "--stream", "s")
    assert done.exit_code == 1
    assert "row 2: column 'when': " in done.stderr


def test_an_import_that_finds_types_cuts_no_nanoseconds(tmp_path: Path) -> None:
    """Unless it is told to; whole microseconds are moments."""
    fine = int96(tmp_path / "a.parquet", {"t": pa.array([1, 2000], pa.timestamp("ns"))})
    refused = invoke("import", tmp_path / "s", fine, "--stream", "fine")
    assert refused.exit_code
    assert "row 1: column 't' has nanoseconds, which timestamp does not keep" in refused.stderr
    ok("import", tmp_path / "s", fine, "--stream", "text", "--schema", "t string")
    ok("import", tmp_path / "s", fine, "--stream", "cut", "--schema", "t timestamp")
    whole = int96(tmp_path / "b.parquet", {"t": pa.array([1000, 2000], pa.timestamp("ns"))})
    ok("import", tmp_path / "s", whole, "--stream", "whole")
    with logstore.open(tmp_path / "s", encoding="utf-8") as opened:
        assert "fine" not in opened
        assert [entry.fields["t"] for entry in opened.stream("text")] == [
            "1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000002000",
        ]  # fmt: skip
        assert [each.fields["t"].microsecond for each in opened.stream("cut")] == [0, 2]
        assert [each.fields["t"].microsecond for each in opened.stream("whole")] == [1, 2]
