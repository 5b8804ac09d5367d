"""Prevents a server that is asked to end from going on with what a client asked for."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.wire.attacks.servers import Serve, Target
from tests.wire.lines import request

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
