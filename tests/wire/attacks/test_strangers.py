"""Prevents clients without the password from taking what those with it need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Serve, Target
from tests.wire.lines import Refusal, request


def silence(target: Target, size: int) -> str:
    """Many who connect and say nothing."""
    found = [target.socket() for _ in range(size)]
    target.settle(size / 250)
    for each in found:
        each.close()
    return f"{len(found):,} connected"


def commands(target: Target, size: int) -> str:
    """Requests of those who did not give the password, many in one go."""
    lines = [target.line(login=False) for _ in range(10)]
    for line in lines:
        line.send(request([b"XRANGE", b"bystander", b"-", b"+"]) * size)
    refused = 0
    for line in lines:
        for _ in range(size):
            reply = line.reply()
            assert isinstance(reply, Refusal), reply
            refused += 1
        line.close()
    return f"{refused:,} of {size * len(lines):,} refused"


PASSWORD = Serve(password="a secret", files_max=3000)
CASES = [
    AttackCase("strangers who say nothing", silence, small=100, full=1000, serve=PASSWORD,
         budget=Budget(memory_bytes=100 * MIB, files=1010, p99_ms=20)),
    AttackCase("commands without the password", commands, small=100, full=1000, serve=PASSWORD,
         budget=Budget(memory_bytes=20 * MIB, files=12, max_ms=50)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
