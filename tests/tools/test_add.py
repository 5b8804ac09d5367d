"""Prevents an add from the shell that stores other bytes than were typed, or fails loudly."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import invoke, no_traceback, ok, process


def test_the_id_is_printed_and_the_entry_is_there(empty: Path) -> None:
    printed = ok("add", empty, "race", "rider=Castilla", "note=a=b", "tag=1", "tag=2").strip()
    with logstore.open(empty) as store:
        entry = store.stream("race")[printed]
        assert entry.pairs == [
            (b"rider", b"Castilla"), (b"note", b"a=b"), (b"tag", b"1"), (b"tag", b"2"),
        ]  # fmt: skip


def test_bytes_of_the_command_line_are_stored_as_typed(empty: Path) -> None:
    done = process("add", empty, os.fsdecode(b"n\xff"), os.fsdecode(b"f\xfe=\xfd"), "--id", "5-5")
    assert (done.returncode, done.stdout) == (0, b"5-5\n")
    with logstore.open(empty) as store:
        assert store.stream(b"n\xff")["5-5"].pairs == [(b"f\xfe", b"\xfd")]


def test_json(empty: Path) -> None:
    assert json.loads(ok("add", empty, "s", "a=b", "--id", "5-*", "--json")) == {"id": "5-0"}
    ok("add", empty, "s", "a=goes", "--ttl", "1ms")
    with logstore.open(empty, encoding="utf-8") as store:  # whose background sees to it
        while len(store["s"]) > 1:  # the test's own limit ends this
            time.sleep(0.01)


def test_trimming(empty: Path) -> None:
    for at in range(1, 6):
        ok("add", empty, "s", "a=b", "--id", f"{at}-0", "--max-entries", "2", "--exact")
    with logstore.open(empty) as store:
        assert [str(entry.id) for entry in store.stream("s")] == ["4-0", "5-0"]


@pytest.mark.parametrize("id", ["0-0", "1-1", "x", f"{2**64}-0", "3-4-5"])
def test_a_refused_id_changes_nothing(id: str, store: Path) -> None:
    done = process("add", store, "race", "a=b", "--id", id)
    assert done.returncode == 1
    assert done.stderr.startswith(b"logstore: ")
    assert no_traceback(done.stderr)
    with logstore.open(store) as opened:
        assert len(opened.stream("race")) == 4


def test_a_word_that_is_no_pair_is_wrong_usage(empty: Path) -> None:
    assert invoke("add", empty, "s", "pair").exit_code == 2
    assert not empty.exists()


def test_no_create(empty: Path, store: Path) -> None:
    assert invoke("add", store, "nobody", "a=b", "--no-create").exit_code == 1
    assert ok("add", store, "race", "a=b", "--no-create")
    other = empty.with_name("other")
    assert invoke("add", other, "race", "a=b", "--no-create").exit_code == 1
    assert not other.exists()
