"""Prevents one stopped writer from starving every client of a server, and time-outs that add up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.tools.commands import environment
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import serving

CLIENTS = 40
HOLD = (
    "import sys, time, logstore\n"
    "with logstore.open(sys.argv[1], background=False) as store:\n"
    "    with store._live().committer.locked():\n"
    "        print('held', flush=True)\n"
    "        time.sleep(600)\n"
)


@contextmanager
def stopped_writer(path: Path) -> Iterator[int]:
    """Another process that holds the writer lock and is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, env=environment()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        os.kill(process.pid, signal.SIGSTOP)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_reads_are_answered_while_writers_wait(tmp_path: Path) -> None:
    path, timeout_s = tmp_path / "store", 60.0
    with serving(path, store={"lock_timeout": timeout_s}) as served, ExitStack() as stack:
        writers = [stack.enter_context(Line(served.port)) for _ in range(CLIENTS)]
        reader = stack.enter_context(Line(served.port))
        id = reader("XADD", "s", "*", "n", 0)
        assert reader("XGROUP", "CREATE", "s", "g", "$") == b"OK"
        with stopped_writer(path):
            for line in writers:
                line.send(request([b"XADD", b"s", b"*", b"n", b"1"]))
            grouped = stack.enter_context(Line(served.port))
            grouped.send(request([b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"]))
            began = time.monotonic()
            for _ in range(20):
                assert reader("PING") == b"PONG"
                assert reader("XLEN", "s") == 1
                assert reader("XRANGE", "s", "-", "+") == [[id, [b"n", b"0"]]]
                assert reader("XREAD", "STREAMS", "s", "0") == [[b"s", [[id, [b"n", b"0"]]]]]
                assert reader("XREAD", "BLOCK", "1", "STREAMS", "s", "$") == Absent()
                assert reader("WATCH", "s") == b"OK"
                assert b"# Server" in reader("INFO")
                assert reader("XINFO", "STREAM", "s")[1] == 1
                assert reader("DUMP", "s") is not None
            assert time.monotonic() - began < timeout_s / 2
        # When the lock is free, the writers are answered, and nothing of theirs is lost.
        assert all(isinstance(line.reply(), bytes) for line in writers)
        assert len(grouped.reply()[0][1]) in range(CLIENTS + 1)
        assert reader("XLEN", "s") == 1 + CLIENTS


def test_time_outs_of_clients_do_not_add_up(tmp_path: Path) -> None:
    path, timeout_s = tmp_path / "store", 2.0
    with serving(path, store={"lock_timeout": timeout_s}) as served, ExitStack() as stack:
        lines = [stack.enter_context(Line(served.port)) for _ in range(CLIENTS)]
        assert lines[0]("XADD", "s", "1-0", "n", 0) == b"1-0"
        with stopped_writer(path) as pid:
            began = time.monotonic()
            for line in lines:
                line.send(request([b"XADD", b"s", b"*", b"n", b"1"]))
            for line in lines:
                found = line.reply()
                assert isinstance(found, Refusal)
                assert f"process {pid} holds it" in str(found)
            assert time.monotonic() - began < CLIENTS / 4 * timeout_s
        assert isinstance(lines[0]("XADD", "s", "*", "n", 1), bytes)
        assert lines[1]("XLEN", "s") == 2
