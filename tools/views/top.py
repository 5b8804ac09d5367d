"""``logstore top``: what goes on in a store, drawn again and again, with keys.

Invariants: it only reads. On a terminal it fills the screen and leaves it as it was; what it showed
last stays behind if it ends by itself. Without a terminal, or with one that cannot draw over what
it shows (``TERM=dumb``), one picture is written. A new picture is drawn at a look, at a key and
when the terminal has another size, and never beside these.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import OptionError
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from logstore.api.store import Store
    from logstore.telemetry.store_samples import Watch
    from logstore.tools.views.keyboard import Keyboard
    from logstore.tools.views.text_canvas import Canvas
    from logstore.tools.views.top_view import TopView


WIDTH, HEIGHT = 80, 50  # where there is no terminal
FIRST_S = 0.5  # the first rates are there so soon
INTERVAL_MIN = timedelta(seconds=0.1)


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
    """Show what goes on in STORE until 'q': the busiest streams, and groups by their lag.

    Keys sort, filter and pause, and open the page of a stream: '?' lists them. Without a terminal
    that can draw over, it writes one picture; with --json an object a look.
    """
    if interval < INTERVAL_MIN:
        raise OptionError("--interval is 100ms at least")
    with options.reading(path) as store:
        if not output.json and output.can_redraw:
            show(output, store, path, interval.total_seconds(), times, patterns)
            return
        from logstore.telemetry.store_samples import Watch

        watch, number = Watch(store, interval.total_seconds(), patterns), 0
        while number < (times if output.json and times else number + 1):
            time.sleep(watch.rest_s())
            watch.look()
            number += 1
            if not output.json:
                _draw_once(output, path, watch)
                return
            output.json_object(watch.object())
            output.flush()


def _draw_once(output: Output, path: Path, watch: Watch) -> None:
    """One picture, for a file or a terminal that cannot draw over."""
    from logstore.tools.views.text_canvas import Canvas
    from logstore.tools.views.top_picture import picture

    width, _, _ = output.canvas(WIDTH)
    for line in picture(Canvas(width, HEIGHT, output.encoding), path, watch, None):
        output.draw(line)


def show(
    output: Output,
    store: Store[bytes],
    path: Path,
    interval_s: float,
    times: int = 0,
    patterns: tuple[str, ...] = (),
) -> bool:
    """Fill the terminal until a key, a signal, or so many looks end it; whether it was a signal."""
    from rich.console import Console

    from logstore.telemetry.store_samples import Watch
    from logstore.tools.views.keyboard import LEAVE, Keyboard

    console = Console(highlight=False)
    watch = Watch(store, interval_s, patterns, FIRST_S)
    with Keyboard() as keyboard:
        session = TopSession(console, output.encoding, keyboard, store, path, watch, patterns)
        with console.screen():
            last_key = session.run(times)
    if times:
        for line in session.last:
            output.draw(line)
    return last_key == LEAVE


class TopSession:
    """A terminal that shows a store, and the keys of who looks at it."""

    def __init__(
        self, console: Console, encoding: str, keyboard: Keyboard, store: Store[bytes], path: Path,
        watch: Watch, patterns: tuple[str, ...],
    ) -> None:  # fmt: skip
        from logstore.tools.views.top_view import TopView

        self._console, self._encoding, self._keyboard = console, encoding, keyboard
        self._store, self._path, self._watch = store, path, watch
        self._patterns = patterns
        self._view: TopView = TopView()
        self._wanted = ""
        self.last: list[Text] = []

    def run(self, times: int) -> str:
        """Draw, and do what keys say; the end comes by one, which is given, or after so many
        looks."""
        looks = 0
        while True:
            self._draw()
            if times and looks == times:
                return ""
            rest_s = None if self._view.paused else self._watch.rest_s()
            key = self._keyboard.wait(rest_s)
            if key is None:
                self._watch.look()
                looks += 1
            elif not self._press(key):
                return key

    def _press(self, key: str) -> bool:
        from logstore.tools.views import keyboard

        if key == keyboard.SUSPEND:
            self._console.set_alt_screen(False)
            self._console.show_cursor(True)
            sys.stdout.flush()
            self._keyboard.suspend()
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
            return True
        stays = key == keyboard.RESIZED or self._view.press(key, self._watch)
        if self._view.wanted != self._wanted:
            self._filter(self._view.wanted)
        return stays

    def _filter(self, wanted: str) -> None:
        """Look at what is wanted only, so that it is found among more than are looked at."""
        from logstore.tools.views.top_view import glob_of

        self._wanted = wanted
        if not self._patterns:
            self._watch.only((glob_of(wanted),) if wanted else ())

    def _draw(self) -> None:
        from rich.console import Group

        from logstore.tools.views.stream_page import page_of
        from logstore.tools.views.text_canvas import Canvas
        from logstore.tools.views.top_picture import picture

        canvas: Canvas = Canvas(self._console.width, self._console.height, self._encoding)
        view, page = self._view, []
        if view.page is not None and not view.help:
            page = page_of(canvas, self._store, self._watch, view.page)
        self.last = picture(canvas, self._path, self._watch, view, page)
        self._console.update_screen(Group(*self.last))
