"""Prevents any one request below 1 MiB of a client that is in from holding up the others.

Each kind of request is sent by itself, and what bystanders waited meanwhile is looked at; the worst
are told. The budget is for who reads: an XADD stands behind the commit of a request that changes
ten thousand entries, since commits are one after the other; how long is told.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.meter import Bystander
from tests.wire.attacks.servers import Target
from tests.wire.lines import Line, request

ENTRIES = 10_000
STREAMS = 500


def _prepare(target: Target, size: int) -> None:
    """A long stream with a group of which all is pending, and many short ones."""
    entries, streams = ENTRIES * size // 1000, STREAMS * size // 1000
    target.fill([[b"XADD", b"long", b"%d-1" % at, b"f", b"value"] for at in range(1, entries + 1)])
    target.fill([[b"XADD", b"s%d" % at, b"*", b"f", b"v"] for at in range(streams)])
    with target.line(unix=True) as line:
        assert line("XGROUP", "CREATE", "long", "g", "0") == b"OK"
        line("XREADGROUP", "GROUP", "g", "c", "COUNT", entries, "STREAMS", "long", ">")


def requests(size: int) -> dict[str, bytes]:
    """By name; ``size`` is that of the largest, in units of 1,000 bytes."""
    most = size * 1000
    ids = [b"%d-1" % at for at in range(1, most // 20)]
    names = [b"key:%d" % at for at in range(most // 20)]
    words: dict[str, list[bytes]] = {
        "XADD of many fields": [b"XADD", b"a", b"*", *[b"f"] * (most // 16 * 2)],
        "XADD of a large value": [b"XADD", b"a", b"*", b"f", b"x" * most],
        "EXISTS of many": [b"EXISTS", *names],
        "DEL of many": [b"DEL", *names],
        "TOUCH of many": [b"TOUCH", *names],
        "WATCH of many": [b"WATCH", *names],
        "XDEL of many": [b"XDEL", b"long", *[b"%d-2" % at for at in range(most // 20)]],
        "XACK of many": [b"XACK", b"long", b"other", *ids],
        "XCLAIM of many": [b"XCLAIM", b"long", b"g", b"d", b"0", *ids],
        "XAUTOCLAIM": [b"XAUTOCLAIM", b"long", b"g", b"d", b"0", b"-", b"COUNT", b"100000"],
        "XPENDING": [b"XPENDING", b"long", b"g", b"-", b"+", b"100000"],
        "XREAD of many streams": [b"XREAD", b"STREAMS", *names[: most // 30],
                                  *[b"0"] * (most // 30)],
        "XRANGE of it all": [b"XRANGE", b"long", b"-", b"+"],
        "XINFO STREAM FULL": [b"XINFO", b"STREAM", b"long", b"FULL", b"COUNT", b"0"],
        "DUMP": [b"DUMP", b"long"],
        "RESTORE of noise": [b"RESTORE", b"r", b"0", b"\x15" + bytes(range(256)) * (most // 256)],
        "KEYS of many stars": [b"KEYS", b"s*" * (most // 2) + b"b"],
        "KEYS of a large class": [b"KEYS", b"[" + b"a-" * (most // 2)],
        "SCAN of a large pattern": [b"SCAN", b"0", b"MATCH", b"?" * most, b"COUNT", b"1000"],
        "CONFIG GET of many": [b"CONFIG", b"GET", *[b"*a*%d" % at for at in range(most // 20)]],
        "COMMAND INFO of many": [b"COMMAND", b"INFO", *[b"xadd"] * (most // 10)],
        "COMMAND DOCS": [b"COMMAND", b"DOCS"],
        "CLIENT LIST of many IDs": [b"CLIENT", b"LIST", b"ID", *[b"7"] * (most // 8)],
        "CLIENT KILL of a long ID": [b"CLIENT", b"KILL", b"ID", b"9" * most],
        "a long command name": [b"x" * most],
        "an integer of many digits": [b"XRANGE", b"long", b"-", b"+", b"COUNT", b"1" * most],
        "an ID of many digits": [b"XRANGE", b"long", b"1" * most, b"+"],
        "HELLO of many words": [b"HELLO", b"3", *[b"SETNAME"] * (most // 14)],
        "XTRIM": [b"XTRIM", b"long", b"MAXLEN", b"10"],
    }  # fmt: skip
    found = {name: request(each) for name, each in words.items()}
    found["a pipeline of PING"] = request([b"PING"]) * (most // 14)
    found["a pipeline of XADD"] = request([b"XADD", b"p", b"*", b"f", b"v"]) * (most // 46)
    found["a transaction"] = b"".join(
        (request([b"MULTI"]), request([b"XADD", b"t", b"*", b"f", b"v"]) * (most // 46),
         request([b"EXEC"]))
    )  # fmt: skip
    found["an inline request of words"] = b"EXISTS " + b"a " * 30_000 + b"\r\n"
    return found


def _ask(line: Line, data: bytes) -> None:
    """Send requests, and meanwhile read replies, whatever they are, up to that of the last."""
    sender = threading.Thread(target=_send, args=(line, data + request([b"ECHO", b"DONE"])))
    sender.start()
    try:
        _until_done(line)
    finally:
        line._socket.shutdown(socket.SHUT_RDWR)
        sender.join()


def _send(line: Line, data: bytes) -> None:
    with suppress(OSError):  # it was sent away
        line.send(data)


def _until_done(line: Line) -> None:
    tail = b""
    while not tail.endswith(b"$4\r\nDONE\r\n"):
        data = line._socket.recv(1 << 16)
        if not data:
            raise EOFError
        tail = (tail + data)[-64:]


def sweep(target: Target, size: int) -> str:
    """One request after the other."""
    reads: dict[str, float] = {}
    adds: dict[str, float] = {}
    reader, adder = Bystander(target, "reads"), Bystander(target, "adds")
    try:
        for name, data in requests(size).items():
            assert len(data) < MIB, name
            line = target.line(unix=True)
            reader.look()
            adder.look()
            with suppress(EOFError, OSError):  # sent away, as it may be
                _ask(line, data)
            line.close()
            reads[name], adds[name] = reader.look(), adder.look()
    finally:
        reader.end()
        adder.end()
    return f"{len(reads)} requests; reads wait for {_worst(reads)}; XADD for {_worst(adds)}"


def _worst(found: dict[str, float]) -> str:
    names = sorted(found, key=lambda name: -found[name])[:3]
    return ", ".join(f"{name} {found[name]:,.0f} ms" for name in names)


CASES = [
    AttackCase("any one request", sweep, small=100, full=1000, prepare=_prepare, waits="reads",
         # Three lines, those before that are not closed yet, and a file of the store at times; one
         # that is left open by each of 33 requests would be more.
         budget=Budget(memory_bytes=150 * MIB, files=12, max_ms=50)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
