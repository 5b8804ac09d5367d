"""Prevents a crowd of strangers from holding up those who are in, whatever the strangers do.

A thousand connections are kept busy from one thread: each does one thing that is bad by itself, and
who is sent away comes again.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Serve, Target
from tests.wire.lines import request

SEED = 20261122
# What one stranger sends, again and again; one byte at a time where it is to be slow.
DEEDS: dict[str, bytes] = {
    "silent": b"",
    "a web page": b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSHUTDOWN\r\n",
    "quotes": b'"' * 15_000 + b"\r\n",
    "escapes": b'"' + b"\\x41" * 3_500 + b'"\r\n',
    "words": b"a " * 8_000 + b"\r\n",
    "a line without end": b"x" * 16_000,
    "many commands": request([b"XRANGE", b"bystander", b"-", b"+"]) * 400,
    "guesses": request([b"AUTH", b"guess"]) * 200,
    "empty requests": b"*0\r\n" * 5_000 + b"\r\n" * 5_000,
    "a large count": b"*1000000\r\n$1\r\na\r\n",
    "a large word": b"*2\r\n$4\r\nAUTH\r\n$500000000\r\n" + b"x" * 16_000,
    "HELLO": request([b"HELLO", b"3", b"AUTH", b"default", b"guess"]) * 100,
    "noise": random.Random(SEED).randbytes(16_000),
}


class _Crowd:
    """Strangers that all do something."""

    def __init__(self, target: Target, size: int) -> None:
        self._address = ("127.0.0.1", target.port)
        self._select = selectors.DefaultSelector()
        self.count: Counter[str] = Counter()
        names = list(DEEDS)
        for place in range(size):
            self._come(names[place % len(names)])

    def _come(self, name: str) -> None:
        found = socket.socket()
        found.setblocking(False)
        with suppress(BlockingIOError):
            found.connect(self._address)
        self.count["came"] += 1
        self._select.register(
            found, selectors.EVENT_READ | selectors.EVENT_WRITE * bool(DEEDS[name]), name
        )

    def act(self, seconds: float) -> None:
        """All of them at once."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for key, events in self._select.select(0.01):
                found = key.fileobj
                assert isinstance(found, socket.socket)
                try:
                    if events & selectors.EVENT_READ and not found.recv(1 << 16):
                        raise ConnectionResetError
                    if events & selectors.EVENT_WRITE:
                        self.count["bytes"] += found.send(DEEDS[key.data])
                except BlockingIOError:
                    continue
                except OSError:
                    self.count["sent away"] += 1
                    self._select.unregister(found)
                    found.close()
                    self._come(key.data)

    def go(self) -> None:
        """They leave."""
        for key in list(self._select.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._select.close()


def crowd(target: Target, size: int) -> str:
    """All that strangers can do, at once."""
    found = _Crowd(target, size)
    try:
        found.act(max(1.0, size / 200))
        count = found.count
        return (
            f"{count['came']:,} came, {count['sent away']:,} were sent away, "
            f"{count['bytes'] / MIB:,.0f} MiB sent"
        )
    finally:
        found.go()


def handshakes(target: Target, size: int) -> str:
    """Many who begin a TLS handshake, or do not even that."""
    found = []
    try:
        for place in range(size):
            each = socket.socket()
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(("127.0.0.1", target.port))
            found.append(each)
            if place % 50 == 0:
                time.sleep(0.01)
        for place, each in enumerate(found):
            with suppress(OSError):  # sent away, or not yet accepted
                each.send(b"\x16\x03\x01\x02\x00\x01" if place % 2 else b"")
        time.sleep(max(0.5, size / 250))
        with target.line(login=False) as line:
            let_in = line("AUTH", target.serve.password) == b"OK"
        # There is room for who has the password, by TLS as well.
        assert let_in or not target.ours
        return f"{size:,} left open, one more {'let in' if let_in else 'refused'}"
    finally:
        for each in found:
            each.close()


CASES = [
    AttackCase("a crowd of strangers", crowd, small=130, full=1000,
         serve=Serve(password="a secret", files_max=4096),
         budget=Budget(memory_bytes=100 * MIB, files=1100, p99_ms=20)),
    AttackCase("TLS handshakes left open", handshakes, small=130, full=1300,
         serve=Serve(password="a secret", tls=True, files_max=1100),
         budget=Budget(memory_bytes=100 * MIB, files=700, p99_ms=20, log_bytes=8 * 1024)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
