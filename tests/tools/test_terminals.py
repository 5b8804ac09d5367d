"""Prevents words that do not fit their terminal, and bytes that are shown as other bytes."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.api.entry import Entry
from logstore.ids import StreamID
from logstore.tools import output as forms
from logstore.tools.lines import Row, RowIDs
from logstore.tools.plain_rows import one_by_one
from logstore.tools.text_input import read_json
from tests.tools.commands import invoke, ok, on_a_terminal

EVIL = "evil\x1b[7mred\x1b[2J\nline"
OURS = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are long, or evil; groups, dead letters, schedules, tombstones."""
    path = tmp_path_factory.mktemp("terminals") / "store"
    with logstore.open(path, encoding="utf-8", segment_bytes=64 << 10) as opened:
        for name in ("orders", "a:stream:with:a:name:of:" + "many:parts:" * 9, EVIL):
            ids = opened.stream(name).add_many({"n": str(n), "to": "anna"} for n in range(900))
            opened.stream(name).delete(*ids[::3])
            group = opened.stream(name).group(name[:60], start="0")
            group.configure(max_deliveries=1, dead_letter="dead", redeliver_after=1)
            for delivery in group.read(name[:60], count=3):
                delivery.nack()
            group.read(name[:60], count=3)
            for every in (5, 10):
                opened.stream(name).schedule(
                    {"text": "a reminder of " + "many words " * 9},
                    every=timedelta(minutes=every), name=f"each {every} minutes",
                )  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("streams", 0), ("du --segments", 0), ("map", 0), ("doctor", 3), ("info orders", 0),
        ("schedule orders", 0), ("groups", 0), ("pending orders orders", 0), ("dead list", 0),
        ("inspect segment 1", 0), ("top -n 2 --interval 200ms", 0),
    ],
)  # fmt: skip
def test_it_fits_and_no_name_steers_the_terminal(store: Path, said: str, code: int) -> None:
    words = said.split()
    at = 2 if words[0] in {"dead", "inspect"} else 1
    shown = on_a_terminal([*words[:at], str(store), *words[at:]], WIDTH, 50, code)
    assert "\x1b[7m" not in shown
    lines = [OURS.sub("", line) for line in shown.replace("\r", "").split("\n")]
    too_long = [line for line in lines if len(line) > WIDTH and not line.startswith("       $ ")]
    assert not too_long or words[0] == "top"  # which has a test of its own


def test_no_name_among_the_numbers_for_prometheus_steers_the_terminal(store: Path) -> None:
    shown = on_a_terminal(["metrics", str(store)], WIDTH, 50)
    assert "\x1b" not in shown
    assert "evil\\x1b[7mred" in shown
    assert "evil\x1b[7mred" in ok("metrics", store)  # it takes names as they are


def test_a_pipe_gets_a_line_for_each_thing(store: Path) -> None:
    lines = ok("schedule", store, "orders").splitlines()
    assert len(lines) == 2
    text = ok("top", store, "--interval", "100ms")
    assert "\x1b" not in text
    assert "evil\\x1b[7mred" in text


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with 40 streams, two of them with groups, to one of which a thread adds; in a group
    somebody waits."""
    path = tmp_path_factory.mktemp("top") / "store"
    with logstore.open(path, encoding="utf-8") as store:
        for n in range(40):
            store.stream(f"s{n:02}").add_many({"a": "b"} for _ in range(n + 1))
        store.stream("s39").group("late", "0").read("c", count=7)
        waiting = store.stream("s00").group("prompt", "0")
        stop = threading.Event()

        def adds() -> None:
            while not stop.wait(0.005):
                store.stream("s05").add({"a": "b"})

        def waits() -> None:
            while not stop.is_set():
                for delivery in waiting.read("c", timeout=0.2):
                    delivery.ack()

        threads = [threading.Thread(target=work) for work in (adds, waits)]
        for thread in threads:
            thread.start()
        yield path
        stop.set()
        for thread in threads:
            thread.join()


def test_a_terminal_that_cannot_draw_over_gets_one_picture(busy: Path) -> None:
    text = on_a_terminal(["top", str(busy), "--interval", "100ms"], 80, 50, term="dumb")
    assert re.search(r"^stream +adds/s", text, re.MULTILINE)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_a_terminal_it_writes_one_picture(busy: Path) -> None:
    text = ok("top", busy, "--interval", "300ms")
    lines = text.splitlines()
    assert lines[0].endswith(str(busy))
    assert re.search(r"^stream +adds/s +entries +size +last$", text, re.MULTILINE)
    first = next(at for at, line in enumerate(lines) if line.startswith("stream "))
    assert re.match(r"s05 +\d+(\.\d)? ", lines[first + 1])
    assert not re.match(r"s05 +0 ", lines[first + 1])
    assert re.search(r"^s39 / late +\S* +33 +7 ", text, re.MULTILINE)
    assert re.search(r"and \d more$", text, re.MULTILINE)
    assert max(map(len, lines[1:])) <= 80


def test_programs_get_a_line_for_each_look(busy: Path) -> None:
    looks = [
        json.loads(line)
        for line in ok(
            "top", busy, "--interval", "200ms", "-n", 2, "--json", "--stream", "s*"
        ).splitlines()
    ]
    assert len(looks) == 2
    for look in looks:
        rates = {each["stream"]: each["adds_per_s"] for each in look["streams_by_name"]}
        assert len(rates) == 40
        assert rates.pop("s05") > 0
        assert set(rates.values()) == {0}
        groups = {each["group"]: each for each in look["groups_by_name"]}
        assert (groups["late"]["lag"], groups["late"]["pending"]) == (33, 7)
    assert any(each["waiting"] for look in looks for each in look["groups_by_name"])
    assert looks[1]["entries"] > looks[0]["entries"]


@pytest.mark.parametrize(("columns", "lines"), [(40, 20), (80, 24), (200, 50)])
def test_it_fits_the_terminal(busy: Path, columns: int, lines: int) -> None:
    shown = on_a_terminal(["top", str(busy), "--interval", "200ms", "-n", "2"], columns, lines)
    last = shown.rpartition("\x1b[H")[2]  # the last picture, from the upper left on
    rows = [ESCAPES.sub("", row).rstrip("\r") for row in last.split("\n")]
    assert len(rows) <= lines
    assert max(map(len, rows)) <= columns
    assert "s05" in last
    assert "s39 / late" in last
    assert ("consumers" in last) is (columns >= 80)


def test_an_empty_store_and_none(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s"):
        pass
    assert "0 entries in 0 streams" in ok("top", tmp_path / "s", "--interval", "100ms")
    assert invoke("top", tmp_path / "absent").exit_code == 1
    done = invoke("top", tmp_path / "s", "--interval", "1ms")
    assert done.exit_code == 1
    assert "100ms at least" in done.stderr


PAIRS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), min_size=1, max_size=5)


def entry(pairs: list[tuple[bytes, bytes]]) -> Entry[bytes]:
    """An entry of some pairs."""
    return Entry(StreamID(1, 2), [part for pair in pairs for part in pair], None)


@given(PAIRS)
def test_json_gives_every_byte_back(pairs: list[tuple[bytes, bytes]]) -> None:
    line = json.dumps(forms.entry_object(entry(pairs)), ensure_ascii=False).encode()
    assert list(one_by_one(read_json(io.BytesIO(line), RowIDs()))) == [
        Row(1, StreamID(1, 2), pairs)
    ]


@given(st.lists(st.binary(max_size=6), min_size=2, max_size=2, unique=True))
def test_readable_text_is_unambiguous_and_of_one_line(two: list[bytes]) -> None:
    texts = [forms.readable(raw) for raw in two]
    assert texts[0] != texts[1]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("Zürich".encode(), "Zürich"),
        (b"a\xffb", "a\\xffb"),
        (b"\x1b[31m", "\\x1b[31m"),
        (b"two\nlines", "two\\nlines"),
        (b"C:\\xff", "C:\\\\xff"),
    ],
)
def test_readable(raw: bytes, text: str) -> None:
    assert forms.readable(raw) == text


@pytest.mark.parametrize(
    ("pairs", "form"),
    [
        ([(b"a", b"b")], {"id": "1-2", "fields": {"a": "b"}}),
        ([(b"a", b"b"), (b"a", b"c")], {"id": "1-2", "pairs": [["a", "b"], ["a", "c"]]}),
        ([(b"a", b"\xff")], {"id": "1-2", "pairs_base64": [["YQ==", "/w=="]]}),
    ],
)
def test_the_three_forms(pairs: list[tuple[bytes, bytes]], form: dict[str, object]) -> None:
    assert forms.entry_object(entry(pairs)) == form


def test_a_line_is_quoted_for_a_shell() -> None:
    assert forms.entry_line(entry([(b"a", b"b c"), (b"d", b"'")])) == "1-2 'a=b c' 'd='\"'\"''"
