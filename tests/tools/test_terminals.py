"""Prevents commands that a narrow terminal breaks within words, and names that steer a terminal."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import ok, on_a_terminal

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
