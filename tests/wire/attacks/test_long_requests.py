"""Prevents patterns, names and wake-ups that hold up other clients, or fill memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Target
from tests.wire.lines import request


def stars(target: Target, size: int) -> None:
    """Patterns that those who go back never end with."""
    with target.line() as line:
        for most in (12, size):
            assert line("KEYS", b"a*" * most + b"b") == []
            assert line("SCAN", "0", "COUNT", "99", "MATCH", b"*a?" * most + b"b") == [b"0", []]
            assert line("CONFIG", "GET", b"*a" * most + b"!") == []


def letters(target: Target, _size: int) -> None:
    """Names of one letter."""
    target.fill([[b"XADD", b"a" * 40 * at, b"*", b"f", b"v"] for at in range(1, 20)])


def long_name(target: Target, size: int) -> None:
    """A command whose name is that long."""
    with target.line() as line:
        assert str(line(b"a" * size)).startswith("ERR unknown command 'aaa")


def woken(target: Target, size: int) -> None:
    """Clients that wait for one entry."""
    lines = [target.line() for _ in range(size)]
    for each in lines:
        each.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]))
    target.settle(0.5)
    with target.line() as line:
        for _ in range(3):
            line("XADD", "s", "*", "f", "v")
            for each in lines:
                each.reply()
                each.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]))
            target.settle(0.2)
    for each in lines:
        each.close()


CASES = [
    AttackCase("patterns of many stars", stars, small=200, full=10_000,
         budget=Budget(max_ms=50, memory_bytes=16 * MIB, cpu_s=5), prepare=letters, redis=False,
         why="it needs minutes"),
    AttackCase("a command with a long name", long_name, small=4 * MIB, full=64 * MIB,
         budget=Budget(memory_bytes=200 * MIB, cpu_s=2)),
    AttackCase("clients woken at once", woken, small=200, full=2000,
         budget=Budget(max_ms=50, memory_bytes=64 * MIB)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
