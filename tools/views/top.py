"""``logstore top`` and ``metrics``: the numbers of a store, for people and for Prometheus.

Invariants of ``top``: it only reads, and takes samples so seldom that it needs at most
``CPU_SHARE`` of a core. Rates are differences between two samples, so the first picture has none.
Lines that do not fit the terminal are left out, the quietest first, and are counted. Without a
terminal, or with one that cannot draw over what it shows (``TERM=dumb``), one picture is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import showing
from logstore.errors import OptionError
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output
from logstore.tools.text_tables import cell_len, fitting
from logstore.tools.wording import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from logstore.api.store import Store


CPU_SHARE = 0.018  # below 2 %, with the garbage collector
LOADING_LOOKS = 2
SERIES_MAX = 10_000
WIDTH, HEIGHT = 80, 50  # where there is no terminal
HEADS = 3  # lines of both tables that are no rows
INTERVAL_MIN = timedelta(seconds=0.1)
Numbers = dict[str, dict[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers at one time, by their names without ``logstore_``, then by their labels."""

    at_s: float
    numbers: Numbers

    def one(self, name: str) -> float:
        """A number of the store."""
        return self.numbers[name].get((), 0.0)


@options.command("top")
@click.option("--interval", type=LENGTH, default="2s", show_default=True,
              help="How often to look.")  # fmt: skip
@click.option("-n", "--count", "times", type=options.number(0), default=0, show_default=True,
              help="End after so many looks; 0: when interrupted.")  # fmt: skip
@click.option("--stream", "patterns", multiple=True, metavar="GLOB",
              help="Only streams that match; repeatable.")  # fmt: skip
def top(
    output: Output, path: Path, interval: timedelta, times: int, patterns: tuple[str, ...]
) -> None:
    """Show what goes on in STORE until interrupted: the busiest streams, and groups by their lag.

    Without a terminal that can draw over, it writes one picture; with --json an object a look.
    """
    if interval < INTERVAL_MIN:
        raise OptionError("--interval is 100ms at least")
    with options.reading(path) as store:
        samples = _samples(store, interval.total_seconds(), patterns)
        before = next(samples)
        if output.json:
            for number, sample in enumerate(samples, 1):
                output.json_object(_object(before, sample))
                output.flush()
                before = sample
                if number == times:
                    return
        elif not output.can_redraw:
            for renderable in _picture(path, before, next(samples), WIDTH, HEIGHT):
                output.draw(renderable)
        else:
            _live(path, before, samples, times)


def _samples(store: Store[bytes], interval_s: float, patterns: tuple[str, ...]) -> Iterator[Sample]:
    """A sample each interval; later if a sample takes long."""
    from logstore.api.opening import opened_of
    from logstore.telemetry.gathering import gather

    opened = opened_of(store)
    for number in count():
        cpu_s, at_s = time.process_time(), time.monotonic()
        numbers: Numbers = {
            family.name.removeprefix("logstore_"): dict(family.samples)
            for family in gather(opened, SERIES_MAX, patterns)
        }
        yield Sample(at_s, numbers)
        spent_s = time.process_time() - cpu_s  # with the drawing, without loading modules
        spent_s = spent_s if number >= LOADING_LOOKS else 0.0
        rest_s = max(interval_s, spent_s / CPU_SHARE) - (time.monotonic() - at_s)
        time.sleep(max(0.0, rest_s))


def _live(path: Path, before: Sample, samples: Iterator[Sample], times: int) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(highlight=False)

    def picture(then: Sample, now: Sample) -> RenderableType:
        return Group(*_picture(path, then, now, console.width, console.height))

    with Live(picture(before, before), console=console, screen=True, auto_refresh=False) as live:
        for number, sample in enumerate(samples, 1):
            live.update(picture(before, sample), refresh=True)
            before = sample
            if number == times:
                return


# -- the picture ------------------------------------------------------------------------------
def _picture(
    path: Path, then: Sample, now: Sample, width: int, height: int
) -> list[RenderableType]:
    """The head, and both tables, in so many lines of so many characters."""
    from rich.text import Text

    title = Text(f"{time.strftime('%H:%M:%S')}  {path}", "bold", no_wrap=True, overflow="ellipsis")
    warnings = [text for name, text in WARNINGS.items() if now.one(name)]
    parts: list[RenderableType] = [title]
    parts += [Text(f"! {text}", "bold red", no_wrap=True) for text in warnings]
    parts += [Text(line) for line in _head(then, now, width)[: max(1, height // 3)]]
    parts.append(Text(""))
    streams, groups = _stream_rows(then, now), _group_rows(then, now)
    lines = height - len(parts) - HEADS
    for_groups = min(len(groups), max(1, lines // 2, lines - len(streams)))
    parts += _table(STREAM_HEAD, streams, max(1, lines - for_groups), STREAM_NARROW, width)
    if groups:
        parts.append(Text(""))
        parts += _table(GROUP_HEAD, groups, for_groups, GROUP_NARROW, width)
    return parts


STREAM_HEAD = ("stream", "adds/s", "entries", "size", "last")
GROUP_HEAD = ("stream / group", "reads/s", "lag", "pending", "oldest", "waiting", "consumers")
# What a narrow terminal does without, the first first.
STREAM_NARROW = ("last", "size", "entries")
GROUP_NARROW = ("consumers", "waiting", "oldest", "reads/s")
WARNINGS = {
    "sync_failed": "a sync failed: nothing more is acknowledged ('logstore doctor' tells more)",
    "space_low": "space on the disk runs low ('logstore doctor' tells more)",
}


def _head(then: Sample, now: Sample, width: int) -> list[str]:
    """The lines about the store as a whole."""
    adds = sum(_rates(then, now, "stream_entries_added").values())
    log = _rate(then, now, then.one("log_bytes"), now.one("log_bytes"))
    behind_s = now.one("not_durable_seconds")
    behind = f" for {behind_s:.1f} s" if behind_s else ""
    compacted = "no compaction since it is open"
    if now.one("compacted_timestamp_seconds"):
        ago = showing.ago(showing.at(int(now.one("compacted_timestamp_seconds") * 1000)))
        compacted = f"compacted {ago}"
    waiting = sum(now.numbers["group_waiting"].values())
    facts = [
        f"{_per_s(adds)} adds/s",
        f"{now.one('entries'):,.0f} entries in "
        + showing.counted(int(now.one("streams")), "stream"),
        f"log {showing.size(int(now.one('log_bytes')))} ({showing.size(int(max(0.0, log)))}/s) in "
        + showing.counted(int(now.one("segments")), "segment"),
        f"not durable {showing.size(int(now.one('not_durable_bytes')))}{behind}",
        f"reclaimable {showing.size(int(now.one('reclaimable_bytes')))}",
        compacted,
        f"{showing.counted(int(now.one('pins')), 'pin')} on "
        + showing.size(int(now.one("pinned_bytes"))),
        f"{showing.size(int(now.one('file_system_free_bytes')))} free",
        f"{waiting:,.0f} waiting, {now.one('pending'):,.0f} pending in "
        + showing.counted(int(now.one("groups")), "group"),
    ]
    return list(_folded(facts, width))


def _folded(facts: list[str], width: int) -> Iterator[str]:
    """The facts in lines of at most so many characters, none of them broken."""
    line = ""
    for fact in facts:
        joined = f"{line}  ·  {fact}" if line else fact
        if line and len(joined) > width:
            yield line
            joined = fact
        line = joined
    yield line


def _stream_rows(then: Sample, now: Sample) -> list[tuple[str, ...]]:
    """The rows of streams: the busiest first, then the longest."""
    rates = _rates(then, now, "stream_entries_added")
    entries, sizes = now.numbers["stream_entries"], now.numbers["stream_bytes"]
    last = now.numbers["stream_last_timestamp_seconds"]
    order = sorted(entries, key=lambda at: (-rates.get(at, 0.0), -entries[at], at))
    return [
        (
            printable(at[0]),
            _per_s(rates.get(at)),
            f"{entries[at]:,.0f}",
            showing.size(int(sizes[at])),
            showing.age(showing.at(int(last[at] * 1000))) if at in last else "",
        )
        for at in order
    ]


def _group_rows(then: Sample, now: Sample) -> list[tuple[str, ...]]:
    """The rows of groups: the largest lag first, then the oldest pending entry."""
    lags, pending = now.numbers["group_lag"], now.numbers["group_pending"]
    oldest, waiting = now.numbers["group_oldest_pending_seconds"], now.numbers["group_waiting"]
    consumers, reads = now.numbers["group_consumers"], _rates(then, now, "group_read")
    order = sorted(pending, key=lambda at: (-lags.get(at, 0.0), -oldest[at], at))
    return [
        (
            printable(" / ".join(at)),
            _per_s(reads.get(at)),
            f"{lags[at]:,.0f}" if at in lags else "unknown",
            f"{pending[at]:,.0f}",
            showing.length(timedelta(seconds=oldest[at])) if pending[at] else "",
            f"{waiting[at]:,.0f}",
            f"{consumers[at]:,.0f}",
        )
        for at in order
    ]


def _table(
    head: Sequence[str], rows: list[tuple[str, ...]], most: int, narrow: Sequence[str], width: int
) -> list[RenderableType]:
    """A table of so many rows, and how many more there are; where it is too wide it does without
    the columns that ``narrow`` names, the first first."""
    from rich.table import Table
    from rich.text import Text

    shown = rows if len(rows) <= most else rows[: max(1, most - 1)]
    columns, cells = fitting(head, [list(row) for row in shown], narrow, width)
    widths = [max(map(cell_len, of_it)) for of_it in zip(columns, *cells, strict=True)]
    left = width - sum(widths[1:]) - 2 * (len(widths) - 1)  # names are cut, and numbers are not
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        if place:
            table.add_column(column, justify="right", no_wrap=True, min_width=widths[place])
        else:
            table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=max(10, left))
    for row in cells:
        table.add_row(*map(Text, row))
    more = len(rows) - len(shown)
    return [table, *([Text(f"and {more:,} more", "dim")] if more else [])]


# -- rates ------------------------------------------------------------------------------------
def _rate(then: Sample, now: Sample, before: float, after: float) -> float:
    return (after - before) / (now.at_s - then.at_s) if now.at_s > then.at_s else 0.0


def _rates(then: Sample, now: Sample, name: str) -> dict[tuple[str, ...], float]:
    """The growth a second of a number of each stream or group; empty for the first sample."""
    if now is then:
        return {}
    before = then.numbers.get(name, {})
    return {
        at: max(0.0, _rate(then, now, before[at], value))
        for at, value in now.numbers.get(name, {}).items()
        if at in before
    }


def _per_s(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _object(then: Sample, now: Sample) -> dict[str, Any]:
    """A sample as an object for JSON."""
    adds, reads = _rates(then, now, "stream_entries_added"), _rates(then, now, "group_read")
    whole = {
        name: values[()]
        for name, values in now.numbers.items()
        if () in values and not name.startswith("process_")
    }
    return {
        "time_s": time.time(),
        **whole,
        "streams_by_name": [
            {"stream": at[0], "adds_per_s": adds.get(at, 0.0), "entries": entries}
            for at, entries in now.numbers["stream_entries"].items()
        ],
        "groups_by_name": [
            {
                "stream": at[0],
                "group": at[1],
                "reads_per_s": reads.get(at, 0.0),
                "lag": now.numbers["group_lag"].get(at),
                "pending": pending,
                "oldest_pending_seconds": now.numbers["group_oldest_pending_seconds"][at],
                "waiting": now.numbers["group_waiting"][at],
            }
            for at, pending in now.numbers["group_pending"].items()
        ],
    }


# -- for Prometheus -------------------------------------------------------------------------------
PROCESS = "logstore_process_"  # of this process, which has done nothing


@options.command("metrics")
@click.option("--series", "series_max", type=options.number(0), default=1000, show_default=True,
              help="So many streams, and groups, have numbers of their own.")  # fmt: skip
@click.option("--stream", "patterns", multiple=True, metavar="GLOB",
              help="Only streams that match have them; repeatable.")  # fmt: skip
def metrics(output: Output, path: Path, series_max: int, patterns: tuple[str, ...]) -> None:
    """Write the numbers of STORE as Prometheus reads them: for a file of its node exporter.

    Length, lag, pending, sizes, what is reclaimable and not durable yet, free space. 'logstore
    serve --metrics-port' answers Prometheus itself.
    """
    from logstore.api.opening import opened_of
    from logstore.telemetry.gathering import exposition, gather

    with options.reading(path) as store:
        families = [
            family
            for family in gather(opened_of(store), series_max, patterns)
            if not family.name.startswith(PROCESS)
        ]
    if output.json:
        for family in families:
            for labels, number in family.samples:
                shown: Any = int(number) if math.isfinite(number) and number % 1 == 0 else number
                named = dict(zip(family.labels, labels, strict=True))
                output.json_object({"name": family.name, **named, "value": shown})
        return
    on_a_terminal = output.stream.isatty()
    for line in exposition(families).decode().splitlines():
        output.line(
            printable(line) if on_a_terminal else line
        )  # Prometheus takes names as they are
