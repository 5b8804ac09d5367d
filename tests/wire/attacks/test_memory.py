"""Prevents one client from taking the server's memory with what it asks for and never reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Serve, Target
from tests.wire.lines import Line, request

ENTRY_BYTES, ENTRIES = 10_000, 600  # 6 MB a reply


def _prepare(target: Target, size: int) -> None:
    target.fill(
        [[b"XADD", b"long", b"*", b"f", b"x" * ENTRY_BYTES] for _ in range(ENTRIES)], batch=100
    )


def _send(line: Line, data: bytes) -> None:
    with suppress(OSError):  # it was sent away
        line.send(data)


def unread(target: Target, size: int) -> str:
    """Replies of megabytes, asked for in one go by a client that reads none of them."""
    line = target.line(unix=True)
    asks = request([b"XRANGE", b"long", b"-", b"+"]) * size
    sender = threading.Thread(target=_send, args=(line, asks), daemon=True)
    sender.start()
    time.sleep(max(1.0, size / 200))
    line._socket.shutdown(2)
    line.close()
    sender.join()
    return f"{len(asks) / 1000:,.0f} KB asked for {size * ENTRIES * ENTRY_BYTES / 1e9:,.1f} GB"


def queued(target: Target, size: int) -> str:
    """A transaction that is never ended, of commands with large words."""
    line = target.line(unix=True)
    assert line("MULTI") == b"OK"
    word = b"x" * (MIB - 100)
    told = 0
    with suppress(OSError, EOFError):  # sent away
        for _ in range(size):
            told += line("XADD", "queue", "*", "f", word) == b"QUEUED"
    line.close()
    return f"{told:,} of {size:,} MiB were queued"


# As ours has it, for who is in; Redis has no limit for clients unless it is given one.
OWED = Serve(theirs=("--client-output-buffer-limit", "normal 256mb 0 0"))
CASES = [
    AttackCase(
        "replies that nobody reads",
        unread,
        small=100,
        full=1000,
        prepare=_prepare,
        serve=OWED,
        budget=Budget(memory_bytes=40 * MIB, files=4),
    ),
    AttackCase(
        "a transaction without end",
        queued,
        small=64,
        full=1200,
        budget=Budget(memory_bytes=int(1.1 * 1024) * MIB, files=4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
