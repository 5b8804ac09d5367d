"""Prevents a picture of what goes on that has other numbers, or that does not fit its terminal."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import invoke, ok, on_a_terminal

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
