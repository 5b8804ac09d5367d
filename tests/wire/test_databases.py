"""Prevents a command that reaches another database than the one that was chosen."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.api import info as described
from logstore.compaction import erasure
from tests.tools.commands import COMMAND, environment, invoke
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import Served, serving

RANGE = Refusal("ERR DB index is out of range")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Databases 0 and 3."""
    with (
        logstore.open(tmp_path / "third") as third,
        serving(tmp_path / "store", others={3: third}, allow_flush=True) as found,
    ):
        yield found


def test_info_looks_at_no_entries(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitors ask every second, and ``store.info()`` may take seconds of a long history."""

    def refused(_: object) -> None:
        raise AssertionError("all that is deleted was looked for")

    monkeypatch.setattr(described, "store_info", refused)
    monkeypatch.setattr(erasure, "deleted_bytes", refused)
    with Line(served.port) as line:
        line("XADD", "s", "1-0", "a", "b")
        line("XDEL", "s", "1-0")
        told = line("INFO", "everything")
        assert b"db0:keys=1," in told
        assert b"\nlog_bytes:" in told
        assert b"disk_bytes:0\r" not in told


def test_each_has_its_own_streams(served: Served) -> None:
    with Line(served.port) as line, Line(served.port) as other:
        assert line("SELECT", 1) == line("SELECT", 16) == line("SELECT", -1) == RANGE
        line.send(b"".join(map(request, (
            (b"XADD", b"s", b"1-0", b"in", b"0"), (b"SELECT", b"3"),
            (b"XADD", b"s", b"2-0", b"in", b"3"), (b"XADD", b"s", b"3-0", b"in", b"3"),
            (b"SELECT", b"0"), (b"XLEN", b"s"), (b"SELECT", b"3"), (b"XLEN", b"s"),
        ))))  # fmt: skip
        told = [line.reply() for _ in range(8)]
        assert told == [b"1-0", b"OK", b"2-0", b"3-0", b"OK", 1, b"OK", 2]
        assert other("XLEN", "s") == 1
        assert b" db=3 " in line("CLIENT", "INFO")
        keyspace = line("INFO", "keyspace")
        assert b"db0:keys=1," in keyspace
        assert b"db3:keys=1," in keyspace
        assert line("DUMP", "s") != other("DUMP", "s")
        assert line("XINFO", "STREAM", "s", "FULL")[1] == 2
        assert line("CONFIG", "GET", "databases") == [b"databases", b"4"]
        assert line("CONFIG", "GET", "dir")[1].endswith(b"third")
        assert line("COPY", "s", "t", "DB", 3) == 1
        assert "use DUMP and RESTORE" in line("COPY", "s", "u", "DB", 0)
        assert line("COPY", "s", "u", "DB", 5) == RANGE
        assert line("RESET") == b"RESET"
        assert line("XLEN", "s") == 1
        assert line("SAVE") == b"OK"
        other("SELECT", 3)
        assert other("FLUSHDB") == b"OK"
        assert (other("DBSIZE"), line("DBSIZE")) == (0, 1)
        other("XADD", "s", "1-0", "a", "b")
        assert other("FLUSHALL") == b"OK"
        assert (other("DBSIZE"), line("DBSIZE")) == (0, 0)


def test_a_read_that_blocks_hears_of_its_own_database(served: Served) -> None:
    words = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"600", b"STREAMS", b"s", b">"]
    with Line(served.port) as far, Line(served.port) as near, Line(served.port) as adder:
        adder("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        adder("SELECT", 3)
        adder("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        far("SELECT", 3)
        near.send(request(words))  # the same key and group: but not one queue
        while adder("CLIENT", "LIST").count(b"cmd=xreadgroup") < 1:
            pass
        far.send(request(words))
        while adder("CLIENT", "LIST").count(b"cmd=xreadgroup") < 2:
            pass
        adder("XADD", "s", "7-0", "a", "b")
        assert far.reply() == [[b"s", [[b"7-0", [b"a", b"b"]]]]]
        assert near.reply() == Absent()


def test_a_transaction_is_of_one_database(served: Served) -> None:
    with Line(served.port) as line, Line(served.port) as other:
        line("SELECT", 3)
        line("WATCH", "s")
        assert "SELECT before" in line("SELECT", 0)
        assert line("SELECT", 3) == b"OK"
        other("XADD", "s", "1-0", "a", "b")
        assert line("MULTI") == b"OK"
        for words in (("XADD", "s", "2-0", "a", "b"), ("SELECT", 0), ("XLEN", "s")):
            assert line(*words) == b"QUEUED"
        found = line("EXEC")  # the other database's stream is not what was watched
        assert (found[0], found[2]) == (b"2-0", 1)
        assert "SELECT before" in found[1]
        assert line("XLEN", "s") == 1


def test_the_command_maps_stores(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", str(tmp_path / "zero"), "--port", "0", "--json", "--database",
         f"1={tmp_path / 'one'}"],
        stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        with Line(json.loads(process.stdout.readline())["port"]) as line:
            assert line("SELECT", 1) == b"OK"
            line("XADD", "s", "1-0", "a", "b")
            assert line("SELECT", 2) == RANGE
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with logstore.open(tmp_path / "one", readonly=True) as store:
        assert len(store.stream("s")) == 1


@pytest.mark.parametrize(
    "given", [["0=x"], ["x=y"], ["1="], ["1=a", "1=b"], ["1=a", "2=a"], ["1=s"]]
)
def test_invalid_databases_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [word for each in given for word in ("--database", each)]
    done = invoke("serve", "s", "--port", "0", *options)
    assert done.exit_code != 0
    assert "--database" in done.output
    assert not (tmp_path / "s").exists()
