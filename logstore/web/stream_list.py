"""The list of streams, a page of it, in any order that ``logstore streams --sort`` knows.

Invariants: a page by name reads the lines of its own streams only; another order reads those of all
that match. What is not known comes last, whichever way the list is turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from logstore.api import showing
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.telemetry.stream_lines import SORTS, StreamLine, stream_lines
from logstore.tuples import NamedTuple
from logstore.web.addresses import key_of

STREAMS_A_PAGE = 100
BY_NAME = "name"


class Column(NamedTuple):
    """A column of the list: the order that it gives, its word, its classes."""

    sort: str
    word: str
    kind: str


COLUMNS = (
    Column("name", "Stream", ""),
    Column("entries", "Entries", "n"),
    Column("bytes", "Size", "n wide"),
    Column("last", "Last entry", "wide"),
    Column("groups", "Groups", "n wide"),
    Column("pending", "Pending", "n wide"),
    Column("lag", "Lag", "n"),
)


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream in the list."""

    name: str
    key: str  # the name in addresses
    line: StreamLine
    last_time: datetime | None


@dataclass(frozen=True, slots=True)
class StreamList:
    """A page of the list of streams."""

    rows: list[StreamRow]
    matching: int
    in_all: int
    page: int
    sort: str
    up: bool  # the other way round: the smallest first, or names from z to a

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.matching // STREAMS_A_PAGE))

    def aria_sort(self, column: Column) -> str:
        """How the list is sorted by a column, in the word of ARIA; empty: it is not."""
        if column.sort != self.sort:
            return ""
        return "ascending" if self.up != (self.sort == BY_NAME) else "descending"

    def turned(self, column: Column) -> bool:
        """Whether a click on this column asks for the other way round."""
        return column.sort == self.sort and not self.up


def stream_list(
    store: Store[bytes], text: str, page: int, sort: str = BY_NAME, *, up: bool = False
) -> StreamList:
    """The streams whose names contain a text, a page of them.

    Args:
        store: an open store.
        text: what a name must contain; empty: all.
        page: from 1 on; one behind the last is the last.
        sort: an order of ``SORTS``; any other text: by name.
        up: the other way round.
    """
    names = store.streams()
    wanted = [name for name in names if text.casefold() in plain_text(name).casefold()]
    last = max(1, -(-len(wanted) // STREAMS_A_PAGE))
    page = min(max(page, 1), last)
    part = slice((page - 1) * STREAMS_A_PAGE, page * STREAMS_A_PAGE)
    if sort not in SORTS or sort == BY_NAME:
        rows = stream_rows(store, (wanted[::-1] if up else wanted)[part])
        return StreamList(rows, len(wanted), len(names), page, BY_NAME, up)
    lines = sorted(stream_lines(opened_of(store), wanted), key=SORTS[sort])
    if up:
        known = [each for each in lines if each.lag is not None or sort != "lag"]
        lines = [*known[::-1], *lines[len(known) :]]
    return StreamList([_row(line) for line in lines[part]], len(wanted), len(names), page, sort, up)


def stream_rows(store: Store[bytes], names: list[bytes]) -> list[StreamRow]:
    """Rows of these streams, in their order."""
    return [_row(line) for line in stream_lines(opened_of(store), names)]


def _row(line: StreamLine) -> StreamRow:
    moment = showing.clock(line.last_id.ms)
    return StreamRow(plain_text(line.name), key_of(line.name), line, moment)
