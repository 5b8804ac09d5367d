"""Prevents a picture that does not fit its terminal, keys that do nothing or something else, a
terminal that is left in another state, and work for streams that nobody sees.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.telemetry import store_samples
from logstore.telemetry.store_samples import ACKS, ADDS, WHOLE, Watch
from logstore.tools.command_options import reading
from logstore.tools.text_tables import cell_len
from logstore.tools.views import keyboard
from logstore.tools.views.stream_page import page_of
from logstore.tools.views.text_canvas import BLOCKS, LEVELS, Canvas
from logstore.tools.views.top_picture import picture
from logstore.tools.views.top_view import TopView
from tests.tools.pseudo_terminal import Terminal

COLOUR = re.compile(rb"\x1b\[(?:[0-9]+;)*3[0-9](?:;[0-9]+)*m")
DOWN, UP, ESC = "\x1b[B", "\x1bOA", "\x1b"
ODD = b"odd\xff\\x"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams of several lengths; groups, one with a lag, one with what is pending; odd names."""
    path = tmp_path_factory.mktemp("top") / "store"
    with logstore.open(path, encoding="utf-8", background=False) as store:
        for n in range(30):
            store.stream(f"s{n:02}").add_many({"n": str(at)} for at in range(30 - n))
        store.stream("s03").group("late", "0").read("anna", count=7)
        store.stream("s05").group("prompt", "0")
        store.stream(ODD).add({"a": "\x1b[7m", "text": "überall 工場"})
        store.stream("工場" * 20).add({"a": "b"})
        store.stream("工場" * 20).group("ü\x1b[7m", "0").read("anna")
    return path


@pytest.fixture
def shown(path: Path, tmp_path: Path) -> Iterator[Terminal]:
    """A terminal with the store; what it shows is there."""
    terminal = Terminal("top", str(path), "--interval", "100ms", home=tmp_path)
    terminal.screen("in 32 streams", "quit")
    yield terminal
    terminal.type("q")
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.said  # what was shown before is there again


def row_of(lines: list[str], name: str) -> int:
    """The line that begins with a name."""
    return next(at for at, line in enumerate(lines) if line.startswith(name))


# -- keys ---------------------------------------------------------------------------------------
def test_help_lists_the_keys_and_goes(shown: Terminal) -> None:
    shown.type("?")
    lines = shown.screen("this help", "any key")
    assert any(line.startswith(" Enter") for line in lines)
    shown.type("x")
    shown.screen("in 32 streams")


def test_sorting_turns_the_list_around(shown: Terminal) -> None:
    shown.type("s")
    lines = shown.screen("sort (entries)")
    assert row_of(lines, "s00") < row_of(lines, "s01") < row_of(lines, "s02")
    shown.type("S<")
    shown.screen("sort (stream)")
    shown.type("r\x1b[F")
    lines = shown.screen("s01", "s00", "of 32", "quit")
    assert row_of(lines, "s01") < row_of(lines, "s00")


def test_a_filter_is_shown_as_it_is_typed_kept_and_taken_back(shown: Terminal) -> None:
    shown.type("/s1")
    lines = shown.screen("filter: s1", "s10")
    assert not any(line.startswith("s03") for line in lines)
    shown.type("\r")
    shown.screen("filter s1", "s10", "quit")
    shown.type("/\x7f\x7f*5\r")
    lines = shown.screen("filter *5", "s25", "s05 / prompt", "quit")
    assert not any(line.startswith("s10") for line in lines)
    shown.type("/xyz" + ESC)
    shown.screen("filter *5", "quit")
    shown.type(ESC)
    shown.screen("s03 / late", "in 32 streams")


def test_a_pause_stays_and_keys_go_on(shown: Terminal) -> None:
    shown.type("p")
    first = shown.screen("PAUSED", "go on")[0]
    shown.type("?")
    shown.screen("this help")
    shown.type("?")
    assert "PAUSED" in shown.screen("PAUSED", "in 32 streams")[0]
    assert first.startswith(("/", "…"))
    shown.type(" ")
    assert "PAUSED" not in shown.screen("p pause", "in 32 streams")[0]


def test_the_page_of_a_stream_and_back(shown: Terminal) -> None:
    shown.type("/s03\r")
    shown.screen("filter s03", "quit")
    shown.type(DOWN + "\r")
    lines = shown.screen("newest entries", "Esc back")
    assert lines[0].split("  ")[0].endswith("/ s03")
    assert any(line.startswith("s03 / late") for line in lines)
    newest = lines[row_of(lines, "newest entries") + 1]
    assert re.match(r" *\S+( \S+)?  \d+-\d+ n=26$", newest.rstrip())
    shown.type(ESC)
    shown.screen("filter s03", "Enter look")


def test_the_page_of_a_group_is_that_of_its_stream(shown: Terminal) -> None:
    shown.type("\t" + DOWN)
    shown.screen("Tab streams")
    shown.type("\r")
    lines = shown.screen("newest entries", "s05 / prompt", "Esc back")
    assert lines[0].split("  ")[0].endswith("/ s05")


def test_a_name_that_is_no_text_has_a_page(shown: Terminal) -> None:
    shown.type("/odd\r\r")
    lines = shown.screen("odd\\xff\\x", "newest entries", "Esc back")
    assert any("a=\\x1b[7m" in line for line in lines)
    assert b"\x1b[7mm" not in shown.said


# -- the terminal -------------------------------------------------------------------------------
@pytest.mark.parametrize(("end", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 0),
                                           (signal.SIGHUP, 0)])  # fmt: skip
def test_every_end_leaves_the_terminal_as_it_was(
    path: Path, tmp_path: Path, end: str | signal.Signals, code: int
) -> None:
    terminal = Terminal("top", str(path), home=tmp_path)
    before = terminal.modes()
    terminal.screen("in 32 streams", "quit")
    assert terminal.modes() != before
    if isinstance(end, str):
        terminal.type(end)
    else:
        os.kill(terminal.pid, end)
    assert terminal.end() == code
    assert terminal.modes_at_end == before
    assert terminal.said.count(b"\x1b[?1049h") == terminal.said.count(b"\x1b[?1049l") == 1
    assert terminal.said.rindex(b"\x1b[?25h") > terminal.said.rindex(b"\x1b[?25l")
    assert b"Traceback" not in terminal.said


def test_a_stop_gives_the_terminal_back_and_a_continue_draws_anew(
    path: Path, tmp_path: Path
) -> None:
    terminal = Terminal("top", str(path), home=tmp_path)
    before = terminal.modes()
    terminal.screen("in 32 streams", "quit")
    terminal.type("\x1a")
    pid, status = os.waitpid(terminal.pid, os.WUNTRACED)
    assert (pid, os.WIFSTOPPED(status)) == (terminal.pid, True)
    assert terminal.modes() == before
    terminal.said = b""
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.screen("in 32 streams", "quit")
    terminal.type("q")
    assert terminal.end() == 0


def test_another_size_is_drawn_at_once(path: Path, tmp_path: Path) -> None:
    terminal = Terminal("top", str(path), "--interval", "1h", home=tmp_path, size=(200, 40))
    terminal.screen("s29", "quit")
    for columns, lines in ((40, 12), (80, 4), (20, 1), (120, 30)):
        terminal.said = b""
        terminal.resize(columns, lines)
        rows = terminal.screen("/" if columns < 40 else "adds/s")
        assert len(rows) <= lines
        assert max(map(len, rows)) <= columns
    terminal.type("q")
    assert terminal.end() == 0


def test_without_colours_and_in_ascii(path: Path, tmp_path: Path) -> None:
    plain = Terminal("top", str(path), "--interval", "100ms", home=tmp_path,
                     NO_COLOR="1", PYTHONIOENCODING="ascii")  # fmt: skip
    plain.screen(LEVELS[0] * 3, "quit")
    plain.type("q")
    assert plain.end() == 0
    assert plain.said.isascii()
    assert not COLOUR.search(plain.said)
    coloured = Terminal("top", str(path), "--interval", "100ms", home=tmp_path)
    coloured.screen(BLOCKS[0] * 3, "quit")
    coloured.type("q")
    assert coloured.end() == 0
    assert COLOUR.search(coloured.said)


def test_without_keys_it_draws_until_its_looks_are_over(path: Path, tmp_path: Path) -> None:
    from tests.tools.commands import COMMAND

    command = (*COMMAND, "top", str(path), "-n", "2", "--interval", "100ms")
    sh = ("/bin/sh", "-c", " ".join(command) + " </dev/null")
    terminal = Terminal(home=tmp_path, program=sh)
    assert terminal.end() == 0
    assert b"in 32 streams" in terminal.said.rpartition(b"\x1b[?1049l")[2]


# -- the picture --------------------------------------------------------------------------------
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("width", [1, 7, 20, 40, 60, 80, 150, 200])
def test_a_picture_fits_however_small(path: Path, width: int, encoding: str) -> None:
    with reading(path) as store:
        watch = Watch(store, 0.1, ())
        watch.look()
        for height in (1, 2, 3, 4, 5, 6, 8, 10, 16, 24, 60):
            canvas = Canvas(width, height, encoding)
            views = [None, TopView(), TopView(on_groups=True), TopView(help=True),
                     TopView(typed="s" * 60), TopView(wanted="zzz", paused=True)]  # fmt: skip
            for view in views:
                check(canvas, picture(canvas, path, watch, view))
            for name in ("s03", "工場" * 20, "odd\\xff\\x", "gone"):
                view = TopView(page=name)
                page = page_of(canvas, store, watch, name)
                check(canvas, picture(canvas, path, watch, view, page))


def check(canvas: Canvas, lines: list[object]) -> None:
    """They fit, and can be written."""
    assert len(lines) <= canvas.height
    for line in map(str, lines):
        assert cell_len(line) <= canvas.width, line
        assert line.isprintable()
        line.encode(canvas.encoding)


def test_only_what_fits_is_made(tmp_path: Path) -> None:
    class Counting(Canvas):
        """Counts the names that become text."""

        made = 0

        def text(self, raw: str) -> str:
            Counting.made += 1
            return super().text(raw)

    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        with store.transaction() as tx:
            for n in range(2000):
                tx.stream(f"s{n}").add({"a": "b"})
        for n in range(200):
            store.stream(f"s{n}").group("g", "0")
        with reading(tmp_path / "s") as looked:
            lines = picture(Counting(80, 24), tmp_path, Watch(looked, 0.1, ()), TopView())
    assert len(lines) == 24
    assert any("and 1,9" in str(line) for line in lines)
    assert Counting.made <= 2 * 24


def test_a_filter_finds_what_is_beyond_the_streams_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_samples, "SERIES_MAX", 3)
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        for n in range(9):
            store.stream(f"s{n}").add({"a": "b"})
    with reading(tmp_path / "s") as looked:
        watch, canvas = Watch(looked, 0.1, ()), Canvas(80, 24)
        lines = [str(line) for line in picture(canvas, tmp_path, watch, TopView())]
        assert any(line.startswith("s0 ") for line in lines)
        assert any("and 6 more" in line for line in lines)
        watch.only(("*7*",))
        assert list(watch.now.of("stream_entries")) == [("s7",)]


def test_rates_and_trends_are_of_what_was_done(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        for name in ("busy", "idle"):
            store.stream(name).add({"a": "b"})
        group = store.stream("busy").group("g", "0")
        group.read("c")
        with reading(tmp_path / "s") as looked:
            watch = Watch(looked, 0.1, ())
            assert (watch.rate(ADDS), watch.trend(ADDS)) == (None, [])
            for count in (0, 5, 0):
                store.stream("busy").add_many({"a": "b"} for _ in range(count))
                for delivery in group.read("c", count=count or None) if count else ():
                    delivery.ack()
                time.sleep(0.01)
                watch.look()
    for name, at in ((ADDS, ("busy",)), (ACKS, ("busy", "g")), (ADDS, WHOLE), (ACKS, WHOLE)):
        first, *_, last = watch.trend(name, at)
        assert max(watch.trend(name, at)) > 0
        assert last == 0
        assert first == 0 or at != WHOLE
    assert watch.trend(ADDS, ("idle",)) == []


# -- what keys are ------------------------------------------------------------------------------
def test_names_of_keys() -> None:
    typed = "aü\x1b[A\x1bOB\x1b[5~\x1b[1;5C\r\t\x7f\x1b\x1b[F\x01"
    assert keyboard.keys_of(typed) == [
        "a", "ü", keyboard.UP, keyboard.DOWN, keyboard.PAGE_UP, keyboard.OTHER, keyboard.ENTER,
        keyboard.TAB, keyboard.BACKSPACE, keyboard.ESC, keyboard.END, keyboard.OTHER,
    ]  # fmt: skip


@given(st.text(st.sampled_from("\x1b[O;~5Aqé\x00\r"), max_size=20))
def test_no_key_is_lost_and_none_steers(typed: str) -> None:
    keys = keyboard.keys_of(typed)
    assert all(key.isprintable() for key in keys)
    assert keys.count("é") == typed.count("é")  # no sequence ends with it


@given(st.lists(st.floats(0, 1e9), max_size=40), st.integers(0, 30))
def test_a_trend_has_its_width_and_its_largest_is_full(values: list[float], width: int) -> None:
    for encoding, levels in (("utf-8", BLOCKS), ("ascii", LEVELS)):
        drawn = Canvas(80, 24, encoding).trend(values, width)
        assert len(drawn) == width
        shown = values[-width:] if width else []
        assert (levels[-1] in drawn) == any(shown)
        assert drawn.count(levels[0]) == shown.count(0)


@given(st.text(max_size=30), st.integers(0, 20))
def test_an_elided_name_keeps_both_ends(name: str, width: int) -> None:
    canvas = Canvas(80, 24)
    text = canvas.text(name)
    short = canvas.elided(text, width)
    assert cell_len(short) <= width
    assert short == text if cell_len(text) <= width else True
    front, _, behind = short.partition("…")
    assert text.startswith(front) or "…" in text
    assert text.endswith(behind) or "…" in text
