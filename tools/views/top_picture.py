"""The picture of ``logstore top``: the numbers of a store, its busiest streams, its groups.

Invariants: a picture has at most the lines and columns of its canvas, however small. What is not
shown is not made: only rows that fit become text. Lines that do not fit are left out, the least
telling first, and are counted.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from logstore.api import showing
from logstore.telemetry.store_samples import ACKS, ADDS, READS, Labels, Watch, per_s, rate_of
from logstore.tools.text_tables import cell_len
from logstore.tools.views.text_canvas import (
    BAD,
    DIM,
    GOOD,
    NOTE,
    TREND,
    WARN,
    Canvas,
    Fact,
    Piece,
    Row,
    beside,
    grid,
    table,
)
from logstore.tools.views.top_view import Listing, TopView

if TYPE_CHECKING:
    from rich.text import Text

STREAM_HEAD = ("stream", "adds/s", TREND, "entries", "size", "last")
GROUP_HEAD = (
    "stream / group", "acks/s", TREND, "lag", "pending", "oldest", "reads/s", "waiting",
    "consumers",
)  # fmt: skip
# What a narrow terminal does without, the first first.
STREAM_NARROW = ("last", TREND, "size", "entries")
GROUP_NARROW = ("consumers", "waiting", "reads/s", TREND, "oldest", "acks/s")
WARNINGS = {
    "sync_failed": "a sync failed: nothing more is acknowledged ('logstore doctor' tells more)",
    "space_low": "space on the disk runs low ('logstore doctor' tells more)",
}
# Commits of "everysec" are durable after a second; a system writes back after half a minute.
UNSYNCED_WARN_S, UNSYNCED_BAD_S = 3.0, 60.0
PENDING_WARN_S, PENDING_BAD_S = 60.0, 600.0
RowOf: TypeAlias = Callable[[Labels], Row]
HELP_LABEL = 14
FOOTER_HEIGHT, ROOMY_HEIGHT = 8, 16  # lines of a terminal for a footer, for empty lines
BESIDE_WIDTH, BESIDE_GAP = 150, 3
SMALL_TREND, LARGE_TREND, LARGE_TREND_WIDTH = 10, 20, 100

KEYS = (
    ("q, Ctrl-C", "quit"),
    ("?, h", "this help"),
    ("p, Space", "pause, go on"),
    ("/", "filter: a part of a stream's name, or a glob; Enter keeps it, Esc does not"),
    ("Tab", "the keys act on streams, or on groups"),
    ("s, S", "sort by the next column, by the one before"),
    ("r", "reverse the order"),
    ("Up, Down", "choose a row; also PgUp, PgDn, Home, End, and k, j, g, G"),
    ("Enter", "the page of the stream: how it is set, its groups, its newest entries"),
    ("Esc", "back: from a page, then from the filter"),
    ("", ""),
    ("adds/s", "entries that were added in a second; trend: at the last looks"),
    ("acks/s", "what is pending no more: acknowledged, dropped, or dead"),
    ("lag", "entries that a group did not get yet"),
    ("not durable", "committed, and lost if the machine crashes now"),
)


def picture(
    canvas: Canvas, path: Path, watch: Watch, view: TopView | None, page: Sequence[Text] = ()
) -> list[Text]:
    """All lines. Without a view it is for a file: no footer, no trends, nothing is chosen."""
    keys = view is not None and canvas.height >= FOOTER_HEIGHT
    lines = [title(canvas, path, view)]
    height = canvas.height - 1 - keys
    if view is not None and view.help:
        lines += _help(canvas)[:height]
    elif page:
        lines += page[:height]
    else:
        lines += _lists(canvas, watch, view, height)
    if keys and view is not None:
        blank = canvas.height - 1 - len(lines)
        lines += [canvas.line() for _ in range(blank)]
        lines.append(footer(canvas, view))
    return lines[: canvas.height]


def title(canvas: Canvas, path: Path, view: TopView | None) -> Text:
    """The first line: the store, what is shown of it, the time."""
    now = time.strftime("%H:%M:%S")
    marks = [] if view is None else [
        *(["PAUSED"] if view.paused else []),
        *([f"filter {canvas.text(view.wanted)}"] if view.wanted else []),
    ]  # fmt: skip
    said = "  ".join([*marks, now])
    name = canvas.text(str(path) if view is None or view.page is None else f"{path} / {view.page}")
    name = canvas.elided(name, max(1, canvas.width - cell_len(said) - 2))
    space = " " * max(2, canvas.width - cell_len(name) - cell_len(said))
    return canvas.line(Piece(name, "bold"), Piece(space), Piece(said, WARN if marks else DIM))


def footer(canvas: Canvas, view: TopView) -> Text:
    """The last line: what is typed, or the keys that matter most."""
    if view.typed is not None:
        return canvas.line(Piece("filter: ", "bold"), Piece(canvas.text(view.typed)),
                           Piece(" ", "reverse"))  # fmt: skip
    keys = [("q", "quit"), ("?", "help"), ("p", "go on" if view.paused else "pause")]
    if view.help:
        keys = [("q", "quit"), ("any key", "back")]
    elif view.page is not None:
        keys = [("Esc", "back"), *keys]
    else:
        to = "streams" if view.on_groups else "groups"
        keys += [("Enter", "look"), ("/", "filter"), ("s", f"sort ({view.focus.sorted_by})"),
                 ("r", "reverse"), ("Tab", to)]  # fmt: skip
    pieces: list[Piece] = []
    used = 0
    for key, does in keys:
        used += len(key) + 1 + len(does) + 2
        if used - 2 > canvas.width:
            break
        pieces += [Piece(key, "bold"), Piece(f" {does}  ", DIM)]
    return canvas.line(*pieces)


def _help(canvas: Canvas) -> list[Text]:
    lines = [canvas.line()]
    for key, does in KEYS:
        room = max(10, canvas.width - HELP_LABEL - 1)
        for place, part in enumerate(textwrap.wrap(does, room) or [""]):
            label = "" if place else f"{key}  "
            lines.append(canvas.line(Piece(f" {label:{HELP_LABEL}}", "bold"), Piece(part)))
    return lines


# -- the store --------------------------------------------------------------------------------
def _facts(watch: Watch) -> list[Fact]:
    """The store in numbers, the most telling first."""
    now = watch.now
    pending, lags = now.one("pending"), now.of("group_lag")
    oldest_s = max(now.of("group_oldest_pending_seconds").values(), default=0.0)
    compacted_ms = int(now.one("compacted_timestamp_seconds") * 1000)
    written = rate_of(watch.then, now, watch.then.one("log_bytes"), now.one("log_bytes"))
    waiting = sum(now.of("group_waiting").values())
    lag = max(lags.values(), default=0.0)
    return [
        Fact("adds/s", per_s(watch.rate(ADDS)), trend=tuple(watch.trend(ADDS))),
        Fact("acks/s", per_s(watch.rate(ACKS)), trend=tuple(watch.trend(ACKS))),
        Fact("entries", f"{now.one('entries'):,.0f} in "
             + showing.counted(int(now.one("streams")), "stream")),
        Fact("pending", f"{pending:,.0f} in " + showing.counted(int(now.one("groups")), "group"),
             age_style(oldest_s if pending else 0.0)),
        _durable(watch),
        Fact("largest lag", f"{lag:,.0f}", WARN if lag else ""),
        Fact("log", f"{showing.size(int(now.one('log_bytes')))} in "
             + showing.counted(int(now.one("segments")), "segment")),
        Fact("written/s", showing.size(int(max(0.0, written))) if watch.has_rates else ""),
        Fact("free", showing.size(int(now.one("file_system_free_bytes"))),
             BAD if now.one("space_low") else ""),
        Fact("waiting", showing.counted(int(waiting), "reader")),
        Fact("reclaimable", showing.size(int(now.one("reclaimable_bytes")))),
        Fact("compacted", showing.ago(showing.at(compacted_ms)) if compacted_ms
             else "not since it is open"),
        Fact("pins", f"{now.one('pins'):,.0f} on {showing.size(int(now.one('pinned_bytes')))}"
             if now.one("pins") else "none"),
    ]  # fmt: skip


def _durable(watch: Watch) -> Fact:
    """What a crash of the machine would take now."""
    unsynced, since_s = watch.now.one("not_durable_bytes"), watch.now.one("not_durable_seconds")
    if watch.now.one("sync_failed"):
        return Fact("not durable", "a sync failed", BAD)
    if not unsynced:
        return Fact("not durable", "nothing", GOOD)
    style = BAD if since_s >= UNSYNCED_BAD_S else WARN if since_s >= UNSYNCED_WARN_S else ""
    return Fact("not durable", f"{showing.size(int(unsynced))} for {since_s:.1f} s", style)


def age_style(pending_s: float) -> str:
    """The colour of what is pending since then."""
    return BAD if pending_s >= PENDING_BAD_S else WARN if pending_s >= PENDING_WARN_S else ""


# -- the lists --------------------------------------------------------------------------------
def _lists(canvas: Canvas, watch: Watch, view: TopView | None, height: int) -> list[Text]:
    shown = view or TopView()
    warnings = [text for name, text in WARNINGS.items() if watch.now.one(name)]
    lines = [canvas.line(Piece(f"! {text}", BAD)) for text in warnings]
    lines += grid(canvas, _facts(watch))[: max(1, (canvas.height) // 3)]
    lines = lines[:height]
    roomy = canvas.height >= ROOMY_HEIGHT
    streams, groups = shown.streams, shown.groups
    stream_rows = streams.rows(watch, shown.filter)
    group_rows = groups.rows(watch, shown.filter)
    if not group_rows:
        shown.on_groups = False
    left = height - len(lines) - roomy
    if canvas.width >= BESIDE_WIDTH and group_rows and left >= 2:
        half = (canvas.width - BESIDE_GAP) // 2
        part, live = canvas.part(half), view is not None
        on_the_left = _streams(part, watch, shown, stream_rows, left, live)
        on_the_right = _groups(part, watch, shown, group_rows, left, live)
        return [
            *lines,
            *[canvas.line()] * roomy,
            *beside(on_the_left, on_the_right, half + BESIDE_GAP),
        ]
    for_groups = min(len(group_rows), max(1, left // 2 - 1, left - len(stream_rows) - 2))
    for_groups = for_groups + 1 + roomy if group_rows else 0
    parts = [("streams", left - for_groups), ("groups", for_groups - roomy)]
    if group_rows and left - for_groups < 2 + roomy:  # there is room for one of them
        parts = [("groups" if shown.on_groups else "streams", left)]
    for what, rows in parts:
        if rows >= 2:
            draw, found = (_streams, stream_rows) if what == "streams" else (_groups, group_rows)
            lines += [canvas.line()] * roomy
            lines += draw(canvas, watch, shown, found, rows, view is not None)
    return lines


def _streams(
    canvas: Canvas, watch: Watch, view: TopView, rows: list[Labels], height: int, live: bool
) -> list[Text]:
    """The list of streams in so many lines."""
    # Of streams that are not looked at one by one, only the number is known.
    others = 0 if view.filter else int(watch.now.one("streams_without_series"))

    def row(at: Labels) -> Row:
        numbers = watch.now.numbers
        last = numbers["stream_last_timestamp_seconds"].get(at)
        rate = watch.rates[ADDS].get(at)
        return {
            "stream": Piece(canvas.text(at[0])),
            "adds/s": Piece(per_s(rate), GOOD if rate else DIM),
            TREND: Piece(_trend(canvas, watch, ADDS, at), NOTE),
            "entries": Piece(f"{numbers['stream_entries'][at]:,.0f}"),
            "size": Piece(showing.size(int(numbers["stream_bytes"][at]))),
            "last": Piece("" if last is None else showing.age(showing.at(int(last * 1000))), DIM),
        }

    head = STREAM_HEAD if live else tuple(name for name in STREAM_HEAD if name != TREND)
    focused = live and not view.on_groups
    return _listed(canvas, view.streams, rows, others, height, head, STREAM_NARROW, row, focused)


def _groups(
    canvas: Canvas, watch: Watch, view: TopView, rows: list[Labels], height: int, live: bool
) -> list[Text]:
    """The list of groups in so many lines."""
    others = 0 if view.filter else int(watch.now.one("groups_without_series"))
    head = GROUP_HEAD if live else tuple(name for name in GROUP_HEAD if name != TREND)
    return _listed(
        canvas, view.groups, rows, others, height, head, GROUP_NARROW,
        lambda at: group_row(canvas, watch, at), live and view.on_groups,
    )  # fmt: skip


def group_row(canvas: Canvas, watch: Watch, at: Labels) -> Row:
    """A row of the list of groups."""
    numbers = watch.now.numbers
    lag, pending = numbers["group_lag"].get(at), numbers["group_pending"][at]
    oldest_s = numbers["group_oldest_pending_seconds"][at] if pending else 0.0
    acks, reads = watch.rates[ACKS].get(at), watch.rates[READS].get(at)
    return {
        "stream / group": Piece(canvas.text(" / ".join(at))),
        "acks/s": Piece(per_s(acks), GOOD if acks else DIM),
        TREND: Piece(_trend(canvas, watch, ACKS, at), NOTE),
        "lag": Piece("unknown" if lag is None else f"{lag:,.0f}", _lag_style(watch, at, lag)),
        "pending": Piece(f"{pending:,.0f}", age_style(oldest_s)),
        "oldest": Piece(
            showing.length(timedelta(seconds=oldest_s)) if pending else "", age_style(oldest_s)
        ),
        "reads/s": Piece(per_s(reads)),
        "waiting": Piece(f"{numbers['group_waiting'][at]:,.0f}"),
        "consumers": Piece(f"{numbers['group_consumers'][at]:,.0f}"),
    }


def _lag_style(watch: Watch, at: Labels, lag: float | None) -> str:
    """The colour of a lag: one that grows is bad."""
    if not lag:
        return DIM
    before = watch.then.of("group_lag").get(at, lag)
    return BAD if lag > before else WARN


def _trend(canvas: Canvas, watch: Watch, name: str, at: Labels) -> str:
    width = LARGE_TREND if canvas.width >= LARGE_TREND_WIDTH else SMALL_TREND
    return canvas.trend(watch.trend(name, at), width)


def _listed(
    canvas: Canvas, listing: Listing, rows: list[Labels], others: int, height: int,
    head: Sequence[str], narrow: Sequence[str], row: RowOf, focused: bool,
) -> list[Text]:  # fmt: skip
    """A list in so many lines: its head, the rows that fit, and how many more there are."""
    room = max(1, height - 1)
    cut = bool(others) or len(rows) > room
    begin, end = listing.window(rows, room - 1 if cut and room > 1 else room)
    place = listing.place(rows) - begin if focused and listing.chosen is not None else -1
    sorted_by = listing.sorted_by if focused else ""
    lines = table(
        canvas, head, [row(at) for at in rows[begin:end]], narrow,
        sorted_by=sorted_by, chosen=place,
    )  # fmt: skip
    if cut and room > 1:
        more = len(rows) + others - end
        text = (
            f"{begin + 1:,} to {end:,} of {len(rows) + others:,}" if begin else f"and {more:,} more"
        )
        lines.append(canvas.line(Piece(text, DIM)))
    return lines
