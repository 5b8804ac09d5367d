"""Requests that wait for each other, so that they are one commit."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waits import eventually
from tests.wire.lines import Line, request
from tests.wire.served import Served

SOON_S = 60


@contextmanager
def collected(served: Served) -> Iterator[None]:
    """What is sent in the block is not committed before its end, and is all there then."""
    before = served.service.counts.commands
    sent: list[int] = []
    with (served.service.store.path / "LOCK").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _SENT[id(served)] = sent
        yield
        eventually(lambda: served.service.counts.commands - before >= sum(sent))


_SENT: dict[int, list[int]] = {}


def send(served: Served, line: Line, *requests: list[bytes]) -> None:
    """Requests of a client, within ``collected``."""
    _SENT[id(served)].append(len(requests))
    line.send(b"".join(map(request, requests)))


def xadd(key: bytes, value: bytes, id: bytes = b"*") -> list[bytes]:
    """A request."""
    return [b"XADD", key, id, b"n", value]
