"""Prevents a tail that misses, repeats or reorders entries while it follows, or cannot be ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import logstore
from tests.tools.commands import COMMAND, environment, objects, ok


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A tail that follows, ended in any case."""
    command = [*COMMAND, "tail", *arguments, "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_the_last_ones_in_order(store: Path) -> None:
    assert [line.split()[0] for line in ok("tail", store, "race", "-n", "2").splitlines()] == [
        "2-0",
        "3-0",
    ]
    assert len(ok("tail", store, "race").splitlines()) == 4
    assert ok("tail", store, "race", "-n", "0") == ""


def test_json(store: Path) -> None:
    assert [one["id"] for one in objects(ok("tail", store, "race", "--json"))] == [
        "1-1", "1-2", "2-0", "3-0",
    ]  # fmt: skip


def test_a_stream_whose_entries_were_all_deleted(store: Path) -> None:
    with logstore.open(store) as opened:
        opened.stream("race").delete_range("-", "+")
    assert ok("tail", store, "race") == ""


def test_follow_gives_what_comes_and_ends_on_ctrl_c(store: Path) -> None:
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"3-0 ")
        with logstore.open(store) as opened:
            for at in range(4, 9):
                opened.stream("race").add({"at": at}, f"{at}-0")
                assert running.stdout.readline() == f"{at}-0 at={at}\n".encode()
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
        assert running.stderr.read() == b""


def test_follow_after_the_newest_were_deleted(store: Path) -> None:
    """It goes on from the last ID, not from the last entry that is left."""
    with logstore.open(store) as opened:
        opened.stream("race").delete("3-0")
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"2-0 ")
        with logstore.open(store) as opened:
            opened.stream("race").add({"a": "b"}, "3-1")
        assert running.stdout.readline() == b"3-1 a=b\n"


def test_follow_ends_when_nobody_reads(store: Path) -> None:
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"3-0 ")
        running.stdout.close()
        with logstore.open(store) as opened:
            opened.stream("race").add({"a": "b"}, "4-0")
        assert running.wait(10) == 0
        assert running.stderr.read() == b""
