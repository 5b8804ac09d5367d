"""What ``logstore top`` shows of a store, and what each key changes in that.

A view has two lists, of streams and of groups, one of which the keys act on; a filter; and, when
a stream was entered, its page. Invariants: a key changes only what is shown. The chosen row is
that of a stream or group, not of a line: it stays chosen when the order changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from logstore.telemetry.store_samples import ACKS, ADDS, Labels, Watch
from logstore.tools.views import keyboard
from logstore.tuples import NamedTuple

FILTER_MAX = 200


class Order(NamedTuple):
    """A way to sort a list: the column, and what is compared, largest first."""

    column: str
    of: Callable[[Watch], tuple[Mapping[Labels, float], ...]]


STREAM_ORDERS = (
    Order("adds/s", lambda watch: (watch.rates[ADDS], watch.now.of("stream_entries"))),
    Order("entries", lambda watch: (watch.now.of("stream_entries"),)),
    Order("size", lambda watch: (watch.now.of("stream_bytes"),)),
    Order("last", lambda watch: (watch.now.of("stream_last_timestamp_seconds"),)),
    Order("stream", lambda _watch: ()),
)
GROUP_ORDERS = (
    Order(
        "lag",
        lambda watch: (watch.now.of("group_lag"), watch.now.of("group_oldest_pending_seconds")),
    ),
    Order("pending", lambda watch: (watch.now.of("group_pending"),)),
    Order("oldest", lambda watch: (watch.now.of("group_oldest_pending_seconds"),)),
    Order("acks/s", lambda watch: (watch.rates[ACKS], watch.now.of("group_pending"))),
    Order("stream / group", lambda _watch: ()),
)


@dataclass(slots=True)
class Listing:
    """One of the two lists: its order, the chosen row, and what of it fits."""

    all_of: str  # the number that each row has
    orders: tuple[Order, ...]
    order: int = 0
    upside_down: bool = False
    chosen: Labels | None = None
    offset: int = 0
    height: int = 1  # rows of the last picture

    @property
    def sorted_by(self) -> str:
        """The column that the list is sorted by."""
        return self.orders[self.order].column

    def rows(self, watch: Watch, wanted: str) -> list[Labels]:
        """What the list has, in its order."""
        compared = self.orders[self.order].of(watch)
        found = [at for at in watch.now.of(self.all_of) if not wanted or matches(at[0], wanted)]
        found.sort(key=lambda at: (*(-each.get(at, 0.0) for each in compared), at),
                   reverse=self.upside_down)  # fmt: skip
        return found

    def place(self, rows: list[Labels]) -> int:
        """The place of the chosen row; -1: none is chosen."""
        if self.chosen is None or not rows:
            return -1
        try:
            return rows.index(self.chosen)
        except ValueError:  # it has gone
            self.chosen = rows[min(self.offset, len(rows) - 1)]
            return rows.index(self.chosen)

    def window(self, rows: list[Labels], height: int) -> tuple[int, int]:
        """The rows that fit, from one place to another, the chosen one among them."""
        self.height = max(1, height)
        place = self.place(rows)
        if place >= 0:
            self.offset = min(max(self.offset, place - self.height + 1), place)
        else:
            self.offset = 0
        self.offset = max(0, min(self.offset, len(rows) - self.height))
        return self.offset, min(len(rows), self.offset + self.height)

    def move(self, rows: list[Labels], key: str) -> None:
        """Choose another row."""
        place = self.place(rows)
        steps = {
            keyboard.UP: place - 1, "k": place - 1,
            keyboard.DOWN: place + 1, "j": place + 1,
            keyboard.PAGE_UP: place - self.height,
            keyboard.PAGE_DOWN: place + self.height,
            keyboard.HOME: 0, "g": 0,
            keyboard.END: len(rows) - 1, "G": len(rows) - 1,
        }  # fmt: skip
        if rows:
            self.chosen = rows[max(0, min(steps[key], len(rows) - 1))]


def matches(name: str, wanted: str) -> bool:
    """Whether a stream is meant: by a glob, or by a part of its name."""
    return fnmatchcase(name, glob_of(wanted))


def glob_of(wanted: str) -> str:
    """What was typed as a filter, as a glob."""
    return wanted if any(each in wanted for each in "*?[") else f"*{wanted}*"


MOVES = (
    keyboard.UP, keyboard.DOWN, keyboard.PAGE_UP, keyboard.PAGE_DOWN, keyboard.HOME, keyboard.END,
    "j", "k", "g", "G",
)  # fmt: skip


@dataclass(slots=True)
class TopView:
    """What is shown now."""

    streams: Listing = field(default_factory=lambda: Listing("stream_entries", STREAM_ORDERS))
    groups: Listing = field(default_factory=lambda: Listing("group_pending", GROUP_ORDERS))
    on_groups: bool = False
    wanted: str = ""  # the filter
    typed: str | None = None  # the filter while it is typed
    paused: bool = False
    help: bool = False
    page: str | None = None  # the stream that was entered

    @property
    def focus(self) -> Listing:
        """The list that keys act on."""
        return self.groups if self.on_groups else self.streams

    @property
    def filter(self) -> str:
        """What streams are shown, also while it is typed."""
        return self.wanted if self.typed is None else self.typed

    def press(self, key: str, watch: Watch) -> bool:
        """Do what a key says; False: leave."""
        if self.typed is not None:
            self._type(key)
        elif key in {"q", "Q", keyboard.LEAVE}:
            return False
        elif self.help:
            self.help = False
        elif key in {"?", "h"}:
            self.help = True
        elif key in {"p", " "}:
            self.paused = not self.paused
        elif key in {keyboard.ESC, keyboard.BACKSPACE}:
            self._back()
        elif self.page is None:
            self._list(key, watch)
        return True

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key == keyboard.ENTER:
            self.wanted, self.typed = self.typed, None
        elif key == keyboard.ESC:
            self.typed = None
        elif key == keyboard.BACKSPACE:
            self.typed = self.typed[:-1]
        elif len(key) == 1 and len(self.typed) < FILTER_MAX:
            self.typed += key

    def _back(self) -> None:
        """One step back: from the page, from the filter, from the chosen row."""
        if self.page is not None:
            self.page = None
        elif self.wanted:
            self.wanted = ""
        else:
            self.streams.chosen = self.groups.chosen = None

    def _list(self, key: str, watch: Watch) -> None:
        listing = self.focus
        if key == "/":
            self.typed = self.wanted
        elif key == keyboard.TAB:
            self.on_groups = not self.on_groups
        elif key in {"s", ">"}:
            listing.order = (listing.order + 1) % len(listing.orders)
        elif key in {"S", "<"}:
            listing.order = (listing.order - 1) % len(listing.orders)
        elif key == "r":
            listing.upside_down = not listing.upside_down
        elif key in MOVES:
            listing.move(listing.rows(watch, self.filter), key)
        elif key == keyboard.ENTER:
            rows = listing.rows(watch, self.filter)
            place = max(0, listing.place(rows))
            if rows:
                listing.chosen, self.page = rows[place], rows[place][0]
