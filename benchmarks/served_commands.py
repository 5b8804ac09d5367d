"""What single commands cost `logstore serve`: its processor time, and their rate, beside Redis.

Both servers are asked the same over TCP: keys and IDs drawn at random, of streams with hundreds of
nodes, one request at a time and 64, by one client and by fifty. Processor time is that of the whole
process of the server, all threads, in user and system; the rate by the clock is told beside it.
"""

from __future__ import annotations

import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import peer
from benchmarks.harness import ROOT, Bench, Result, Sample, at_most, in_turns
from benchmarks.idle_clients import request

NAME = "served"
STREAMS, ENTRIES = 100, 5_000
ADDED = 1_000  # streams that are added to
PIPELINE, CROWD = 64, 50
LABELS = ("logstore serve", "Redis")
Words = tuple[str, ...]


class Work(NamedTuple):
    """What is asked, how many commands at a time, and how many clients ask."""

    label: str
    ask: Callable[[Data], list[Words]]  # one after the other, of one client
    times: int
    limit: float  # times the processor time of Redis
    pipeline: int = 1
    clients: int = 1


class Data:
    """What both servers hold, and what is drawn of it."""

    def __init__(self, seed: int, entries: int) -> None:
        self.random = random.Random(seed)
        self.entries = entries
        self.group = ""

    def key(self) -> str:
        """One of the streams."""
        return f"stream:{self.random.randrange(STREAMS)}"

    def id(self) -> str:
        """The ID of one of a stream's entries."""
        return f"{1 + self.random.randrange(self.entries)}-0"

    def fields(self) -> Words:
        """Those of an entry."""
        return (
            "rider", f"rider {self.random.randrange(10**6)}",
            "speed", f"{self.random.random() * 60:.3f}",
            "n", str(self.random.randrange(10**9)),
        )  # fmt: skip


def _add(data: Data) -> list[Words]:
    return [("XADD", f"added:{data.random.randrange(ADDED)}", "*", *data.fields())]


def _length(data: Data) -> list[Words]:
    return [("XLEN", data.key())]


def _range(count: int) -> Callable[[Data], list[Words]]:
    return lambda data: [("XRANGE", data.key(), data.id(), "+", "COUNT", str(count))]


def _newest(data: Data) -> list[Words]:
    return [("XREVRANGE", data.key(), "+", "-", "COUNT", "1")]


def _group(count: int) -> Callable[[Data], list[Words]]:
    """A read of what is new, and an ack of what it gave: ``{ids}`` stands for these."""

    def ask(data: Data) -> list[Words]:
        key = data.key()
        read = (
            "XREADGROUP", "GROUP", data.group, "c", "COUNT", str(count), "STREAMS", key, ">"
        )  # fmt: skip
        return [read, ("XACK", key, data.group, "{ids}")]

    return ask


OVER = f"XADD over {ADDED:,} streams"
WORKS = (
    Work(OVER, _add, 10_000, 1.5),
    Work(OVER, _add, 40_000, 0.7, PIPELINE),
    Work(OVER, _add, 10_000, 1.5, 1, CROWD),
    Work("XLEN", _length, 10_000, 2.0),
    Work("XLEN", _length, 20_000, 2.0, PIPELINE),
    Work("XRANGE COUNT 10", _range(10), 5_000, 2.0),
    Work("XRANGE COUNT 100", _range(100), 3_000, 1.5),
    Work("XRANGE COUNT 100", _range(100), 3_000, 1.5, 1, CROWD),
    Work("XREVRANGE COUNT 1", _newest, 5_000, 2.0),
    Work("XREADGROUP COUNT 1 and XACK", _group(1), 3_000, 2.0),
    Work("XREADGROUP COUNT 1 and XACK", _group(1), 3_000, 2.0, 1, CROWD),
    Work("XREADGROUP COUNT 100 and XACK", _group(100), 400, 1.5),
)


class Side:
    """One server, filled."""

    def __init__(self, port: int, pid: int, seed: int, entries: int) -> None:
        self.port, self.pid, self.entries = port, pid, entries
        self._seed = seed
        self._turn = 0
        self._fill()

    def _fill(self) -> None:
        data = Data(self._seed, self.entries)
        client = peer.connect(self.port)
        for stream in range(STREAMS):
            with client.pipeline(transaction=False) as pipe:
                for at in range(self.entries):
                    pipe.execute_command("XADD", f"stream:{stream}", f"{at + 1}-0", *data.fields())
                pipe.execute()
        client.close()

    def begin(self, work: Work) -> Data:
        """What a round draws from: the same for both servers, other data in each round."""
        self._turn += 1
        data = Data(self._seed * 1000 + self._turn, self.entries)
        if "XREADGROUP" in work.label:
            data.group = f"g{self._turn}"
            client = peer.connect(self.port)
            for stream in range(STREAMS):
                client.xgroup_create(f"stream:{stream}", data.group, "0")
            client.close()
        return data

    def cost(self, work: Work, count: int) -> tuple[float, float]:
        """Microseconds of processor time a command (or pair), and commands a second."""
        data = self.begin(work)
        with ExitStack() as stack:
            clients = [
                _Client(stack.enter_context(socket.create_connection(("127.0.0.1", self.port))),
                        work, data)
                for _ in range(work.clients)
            ]  # fmt: skip
            for client in clients:
                client.prepare(-(-count // work.clients))
            begun, begun_s = _processor_s(self.pid), time.perf_counter()
            _ask_all(clients)
            took, took_s = _processor_s(self.pid) - begun, time.perf_counter() - begun_s
        done = sum(client.done for client in clients)
        return took / done * 1e6, done / took_s


class _Client:
    """One connection: what it asks is made before the clock runs."""

    def __init__(self, sock: socket.socket, work: Work, data: Data) -> None:
        import hiredis

        self.sock = sock
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.done = 0
        self._work, self._data = work, data
        self._reader = hiredis.Reader()
        self._sent: Iterator[tuple[list[Words], bytes, int]] = iter(())
        self._left = 0
        self._then: list[Words] = []

    def prepare(self, count: int) -> None:
        """Make the requests of the round."""
        rounds = [self._made(self._work.pipeline) for _ in range(-(-count // self._work.pipeline))]
        self._sent = iter(rounds)

    def _made(self, pipeline: int) -> tuple[list[Words], bytes, int]:
        asked = [self._work.ask(self._data) for _ in range(pipeline)]
        first = b"".join(request(*each[0]) for each in asked)
        return [then for each in asked for then in each[1:]], first, pipeline

    def send(self) -> bool:
        """Send the next; False if there is none."""
        following = next(self._sent, None)
        if following is None:
            return False
        self._then, sent, self._left = following
        self.sock.sendall(sent)
        return True

    def took(self) -> bool:
        """Read what came; False once this client is done."""
        self._reader.feed(self.sock.recv(1 << 18))
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply
            self._left -= 1
            if self._then:
                words = self._then.pop()
                ids = [entry[0].decode() for entry in reply[0][1]] if reply else ["0-1"]
                self.sock.sendall(request(*words[:-1], *ids))
                self._left += 1
            else:
                self.done += 1
        return True if self._left else self.send()


def _ask_all(clients: list[_Client]) -> None:
    if len(clients) == 1:
        going = clients[0].send()
        while going:
            going = clients[0].took()
        return
    with selectors.DefaultSelector() as selector:
        for client in clients:
            if client.send():
                selector.register(client.sock, selectors.EVENT_READ, client)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.took():
                    selector.unregister(key.data.sock)


def _processor_s(pid: int) -> float:
    """Processor time of another process so far, seconds: the kernel's clock of it."""
    return time.clock_gettime((~pid << 3) | 2)


def measured(
    sides: dict[str, Side], bench: Bench
) -> Iterator[tuple[Work, list[Sample], list[Sample]]]:
    """Of each work the processor time, and the rate, of both sides in turns."""
    for work in WORKS:
        count = bench.size(work.times, work.times // 3)
        rates: dict[str, list[float]] = {label: [] for label in sides}

        def cost(
            _: int, label: str = "", work: Work = work, count: int = count, rates: Any = rates
        ) -> float:
            found, rate = sides[label].cost(work, count)
            rates[label].append(rate)
            return found

        costs = in_turns(bench.rounds, {label: partial(cost, label=label) for label in sides})
        yield work, costs, [Sample(label, values[1:]) for label, values in rates.items()]


def named(work: Work) -> str:
    """A work in words."""
    crowd = "1 client" if work.clients == 1 else f"{work.clients} clients"
    piped = "" if work.pipeline == 1 else f", pipeline {work.pipeline}"
    return f"{work.label}, {crowd}{piped}"


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of ``logstore serve`` while the block runs."""
    command = [sys.executable, "-m", "logstore.tools.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        found = re.search(rb":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        yield int(found.group(1)), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def run(bench: Bench) -> list[Result]:
    """Processor time over that of Redis."""
    entries = bench.size(ENTRIES, 1_000)
    results: list[Result] = []
    with ExitStack() as stack:
        far = stack.enter_context(peer.redis_server(bench.folder / "served-redis"))
        near = stack.enter_context(served(bench.folder / "served"))
        places = near, (far, peer.process_of(far))
        sides = {
            label: Side(*place, 30, entries)
            for label, place in zip(LABELS, places, strict=True)
        }  # fmt: skip
        for work, (ours, theirs), rates in measured(sides, bench):
            told = ", ".join(f"{rate.label} {rate.mean:,.0f}" for rate in rates)
            results.append(at_most(
                f"served: {named(work)}", "us of processor time", ours, theirs, work.limit,
                f"a second: {told}",
            ))  # fmt: skip
    return results
