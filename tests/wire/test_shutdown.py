"""Prevents a server that ends, or meets a stopped writer, from starving its clients."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.processes import Program
from tests.tools.commands import environment
from tests.wire.attacks.servers import Serve, Target
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import serving

LONG = b"*a" * 400 + b"b"
NAMES = [b"a" * 1000 + b"%d" % at for at in range(1000)]
FEW, MANY = 20, 150  # requests: so many find room in the buffers of a socket
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ASKED: dict[str, list[bytes]] = {
    "KEYS": [b"KEYS", LONG], "SCAN": [b"SCAN", b"0", b"MATCH", LONG, b"COUNT", b"1000"],
}  # fmt: skip


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def _children_s() -> float:
    """Processor time of the processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


@pytest.mark.parametrize("command", ASKED)
def test_ends_during(command: str, tmp_path: Path) -> None:
    ended_s = _children_s()
    target = Target("ours", Serve(), tmp_path)
    try:
        target.fill([[b"XADD", name, b"*", b"f", b"v"] for name in NAMES])
        one = request(ASKED[command])
        with target.line(unix=True) as line:
            begun_s = _cpu_s(target.pid)
            line.send(one * FEW)
            for _ in range(FEW):
                line.reply()
            few_s = _cpu_s(target.pid) - begun_s
            begun_s = _cpu_s(target.pid)
            line.send(one * MANY)
            with target.line(unix=True) as other:
                assert other("PING") == b"PONG"  # others are answered meanwhile
            target.end()
        took_s = _children_s() - ended_s - begun_s
        assert took_s < few_s * MANY / FEW / 2, f"{took_s:.2f} s; {FEW} take {few_s:.2f} s"
    finally:
        target.kill()


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
    holder = Program(HOLD, path, env=environment())
    try:
        assert holder.answer() == "held"
        os.kill(holder.pid, signal.SIGSTOP)
        yield holder.pid
    finally:
        holder.kill()


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
