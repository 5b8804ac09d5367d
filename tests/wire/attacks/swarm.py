"""Strangers in great number, in one thread: each sends again and again, and comes again when it is
sent away.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import Counter
from contextlib import suppress

from tests.wire.attacks.servers import Target

READ_BYTES = 65536


class Swarm:
    """So many connections to a target, which send ``data`` for as long as it is taken."""

    def __init__(self, target: Target, size: int, data: bytes, *, reads: bool = True) -> None:
        self.seen: Counter[str] = Counter()
        self._address = ("127.0.0.1", target.port)
        self._data = data
        self._reads = reads
        self._wanted = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
        self._selector = selectors.DefaultSelector()
        self._at: dict[socket.socket, int] = {}
        for _ in range(size):
            self._come()

    def _come(self) -> None:
        found = socket.socket()
        found.setblocking(False)
        found.connect_ex(self._address)
        self._at[found] = 0
        self._selector.register(found, self._wanted)
        self.seen["came"] += 1

    def run(self, seconds: float) -> None:
        """Attack for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for key, events in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    self._step(key.fileobj, events)
                except BlockingIOError:
                    pass
                except OSError:
                    self._again(key.fileobj)

    def _step(self, found: socket.socket, events: int) -> None:
        if events & selectors.EVENT_READ and not found.recv(READ_BYTES):
            self._again(found)
            return
        if events & selectors.EVENT_WRITE and self._data:
            at = self._at[found]
            sent = found.send(memoryview(self._data)[at:])
            self._at[found] = (at + sent) % len(self._data)
            self.seen["sent"] += sent
        elif self._data == b"":
            self._again(found)  # comes and goes

    def _again(self, found: socket.socket) -> None:
        self._drop(found)
        self._come()

    def _drop(self, found: socket.socket) -> None:
        self._selector.unregister(found)
        del self._at[found]
        found.close()

    def close(self) -> None:
        """All of them go."""
        for found in list(self._at):
            self._drop(found)
        self._selector.close()

    def __str__(self) -> str:
        return f"{self.seen['came']:,} came, {self.seen['sent'] / 1048576:,.1f} MiB sent"


def hello() -> bytes:
    """The first bytes of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()
