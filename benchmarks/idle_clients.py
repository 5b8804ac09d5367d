"""Thousands of clients that only wait: what each costs `logstore serve`, beside Redis.

Half of them are connected and silent, a quarter waits in XREAD BLOCK, a quarter in XREADGROUP BLOCK
for another stream than the one that is added to. Memory is anonymous memory of the server, before
and with them; it is told on Linux only.
"""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import Bench, Result, Sample, interleave

SETTLED_S = 2.0  # what came last is looked after
SILENT_S = 10.0
TICKS = 100  # a second, of /proc/PID/stat
Rate = Callable[[int, int], float]


def request(*words: str) -> bytes:
    """A request as clients send it."""
    encoded = [word.encode() for word in words]
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n" % len(words) + b"".join(parts)


class Crowd:
    """So many clients of a server, until it is closed."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._control = self._connect()
        self._ask(request("XGROUP", "CREATE", "work", "g", "$", "MKSTREAM"))
        self._clients: list[socket.socket] = []
        self._count = count

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=60)

    def _ask(self, sent: bytes) -> bytes:
        self._control.sendall(sent)
        return self._control.recv(1 << 16)

    def gather(self) -> None:
        """Connect them, and let half of them wait."""
        self._clients += [self._connect() for _ in range(self._count)]
        for at, client in enumerate(self._clients[: self._count // 2]):
            client.sendall(
                request("XREAD", "BLOCK", "0", "STREAMS", "news", "$") if at % 2 else
                request("XREADGROUP", "GROUP", "g", f"c{at}", "BLOCK", "0", "STREAMS", "work", ">")
            )  # fmt: skip
        told = f"blocked_clients:{self._count // 2}\r".encode()
        while told not in self._ask(request("INFO", "clients")):
            time.sleep(0.05)

    def close(self) -> None:
        """All of them go."""
        for client in (*self._clients, self._control):
            client.close()


@contextmanager
def files(count: int) -> Iterator[None]:
    """So many sockets for this process, if the system allows them."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard < 0 else min(count, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _memory_kib(pid: int) -> int | None:
    path = Path(f"/proc/{pid}/status")
    if not path.exists():
        return None
    rows = (line.split() for line in path.read_text().splitlines())
    return next(int(row[1]) for row in rows if row[0] == "RssAnon:")


def _used_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def results(
    bench: Bench, near: tuple[int, int], far: tuple[int, int], bare: int, rate: Rate
) -> list[Result]:
    """Of a server of ours and a Redis, each (port, process), and one of ours without clients."""
    count = bench.size(5_000, 1_000)
    label = f"{count:,} idle clients, half of them in XREAD or XREADGROUP BLOCK"
    memory: list[Sample] = []
    busy: list[Sample] = []
    with files(count * 2 + 500), ExitStack() as stack:
        for name, (port, pid) in (("logstore serve", near), ("Redis", far)):
            crowd = Crowd(port, count)
            stack.callback(crowd.close)
            before = _memory_kib(pid)
            crowd.gather()
            after = _memory_kib(pid)
            if before is None or after is None:
                continue
            memory.append(Sample(name, [(after - before) / count]))
            time.sleep(0 if bench.tiny else SETTLED_S)
            began, silent_s = _used_s(pid), 0.5 if bench.tiny else SILENT_S
            time.sleep(silent_s)
            busy.append(Sample(name, [(_used_s(pid) - began) / silent_s * 100]))
        adds = bench.size(100_000, 25_000) // 64 * 64
        rates = interleave(
            bench.rounds, lambda _: rate(near[0], adds), lambda _: rate(bare, adds),
            ("beside them", "beside none"),
        )  # fmt: skip
    found = [
        Result(f"{what}, {label}", unit, *sides, sides[0].mean, "none", True)
        for what, unit, sides in (("memory of each", "KiB", memory), ("busy", "% of a core", busy))
        if sides
    ]
    ratio = rates[0].mean / rates[1].mean
    return [*found, Result(f"XADD, pipeline 64, {label}", "entries/s", *rates, ratio, "none", True)]
