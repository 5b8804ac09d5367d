"""The page of a stream in ``logstore top``: its rates, how it is set, its groups, what is newest.

Invariants: it reads a fixed number of entries, however many there are; a stream that has gone is
told, and no error. A value is shown up to the width of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.api import showing
from logstore.api.info import plain_text
from logstore.errors import Error
from logstore.telemetry.store_samples import ADDS, Watch, per_s
from logstore.tools import command_options as options
from logstore.tools.views.overview import facts_of_stream
from logstore.tools.views.text_canvas import DIM, NOTE, WARN, Canvas, Fact, Piece, grid, table
from logstore.tools.views.top_picture import GROUP_HEAD, GROUP_NARROW, group_row
from logstore.tools.wording import entry_line

if TYPE_CHECKING:
    from rich.text import Text

    from logstore.api.store import Store

ENTRIES_MAX = 50
GROUPS_SHARE = 3  # of the lines that are left groups get one in three
LABEL_OF_FACTS = 16
LEFT_OUT = {"name", "groups"}  # the title and the table tell


def page_of(canvas: Canvas, store: Store[bytes], watch: Watch, name: str) -> list[Text]:
    """The lines of a page, for a canvas without its title and its footer."""
    try:
        return list(_lines(canvas, store, watch, name))
    except Error as error:
        return [canvas.line(Piece(canvas.text(error.message), WARN))]


def _lines(canvas: Canvas, store: Store[bytes], watch: Watch, name: str) -> Iterator[Text]:
    stream = options.by_codec(store, options.existing(store, _named(store, name)))
    lines = grid(canvas, [
        Fact("adds/s", per_s(watch.rates[ADDS].get((name,))),
             trend=tuple(watch.trend(ADDS, (name,))))
    ], canvas.width)  # fmt: skip
    for label, said in facts_of_stream(stream.info()):
        if label not in LEFT_OUT:
            lines.append(
                canvas.line(Piece(label.ljust(LABEL_OF_FACTS), DIM), Piece(canvas.text(said)))
            )
    yield from lines
    left = canvas.height - len(lines) - 2
    groups = sorted(at for at in watch.now.of("group_pending") if at[0] == name)
    if groups and left > 2:
        shown = groups[: max(1, left // GROUPS_SHARE)]
        yield canvas.line()
        yield from table(
            canvas, GROUP_HEAD, [group_row(canvas, watch, at) for at in shown], GROUP_NARROW
        )
        left -= len(shown) + 2
        if len(shown) < len(groups):
            yield canvas.line(Piece(f"and {len(groups) - len(shown):,} more", DIM))
            left -= 1
    if left > 2:
        yield canvas.line()
        yield canvas.line(Piece("newest entries", "bold"))
        for entry in stream.range(reverse=True, count=min(left - 2, ENTRIES_MAX)):
            moment = showing.clock(entry.id.ms)
            when = "" if moment is None else f"{showing.age(moment):>6}  "
            yield canvas.line(Piece(when, NOTE), Piece(canvas.text(entry_line(entry))))


def _named(store: Store[bytes], shown: str) -> str:
    """The name of the stream that is shown so; one with bytes that are no UTF-8 is looked for."""
    if shown.encode() in store or "\\" not in shown:
        return shown
    found = (name for name in store.streams() if plain_text(name) == shown)
    return next(found, shown.encode()).decode("utf-8", "surrogateescape")
