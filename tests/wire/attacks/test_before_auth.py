"""Prevents strangers who do their worst before AUTH from costing the others much."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Serve, Target
from tests.wire.attacks.swarm import Swarm, hello
from tests.wire.lines import request

SMALL_S, FULL_S = 0.5, 5.0


def swarm(data: bytes, target: Target, size: int, *, reads: bool = True) -> str:
    """All of them send this for a while."""
    made = Swarm(target, size, data, reads=reads)
    try:
        made.run(SMALL_S if size < 500 else FULL_S)
    finally:
        made.close()
    return str(made)


def handshakes(target: Target, size: int) -> str:
    """Silence, half a first message, a whole one; and who has the password reads meanwhile."""
    first = hello()
    told = (b"", first[: len(first) // 2], first)
    found = []
    for number in range(size):
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex(("127.0.0.1", target.port))
        found.append((made, told[number % 3]))
    for made, data in found:
        made.setblocking(True)
        made.settimeout(30)
        with suppress(OSError):  # it made room for others, or waits in the system's queue
            made.sendall(data)
    for _ in range(10):
        with target.line() as line:
            reply = line("XRANGE", "bystander", "-", "+", "COUNT", "1")
            assert isinstance(reply, list), reply
    target.settle(size / 500)
    for made, _ in found:
        made.close()
    return f"{size:,} left open"


PASSWORD = Serve(password="a secret", files_max=8192)
SECURE = Serve(password="a secret", files_max=8192, tls=True)
QUOTED = b"'' \"\\x41\" " * 6000 + b"\r\n"
REFUSED = request([b"XRANGE", b"bystander", b"-", b"+"]) * 500
PAGE = b"POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\n"
GUESS = request([b"AUTH", b"guess"])
LIMITS = Budget(memory_bytes=100 * MIB, files=1060, p99_ms=20, log_bytes=4096)
case_of_hundreds = partial(AttackCase, small=100, full=1000, budget=LIMITS)
CASES = [
    AttackCase(
        "first messages of handshakes",
        handshakes,
        small=200,
        full=1000,
        serve=SECURE,
        budget=LIMITS,
    ),
    case_of_hundreds(
        "handshakes begun again and again",
        partial(swarm, hello()),
        serve=SECURE,
        redis=False,
        why="the Redis of the tests has no TLS",
    ),
    case_of_hundreds("quoted lines of 64 KiB", partial(swarm, QUOTED), serve=PASSWORD),
    case_of_hundreds("refused commands without end", partial(swarm, REFUSED), serve=PASSWORD),
    case_of_hundreds(
        "refused commands, replies unread", partial(swarm, REFUSED, reads=False), serve=PASSWORD
    ),
    case_of_hundreds("guesses of the password", partial(swarm, GUESS), serve=PASSWORD),
    case_of_hundreds("coming and going", partial(swarm, b""), serve=PASSWORD),
    case_of_hundreds("web pages", partial(swarm, PAGE), serve=PASSWORD),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
