"""Loops that do the least of what some figures stand for: what nothing in Python can be below.

A hand-over: who adds pauses, takes a lock, writes, and wakes who waits in another process; that one
takes the lock and writes in turn. A served request: a bare loop of epoll, recv and send, and a
protocol of uvloop, answer with the same bytes whatever they are asked. A shared sync: threads
write, one of them syncs for all and lets each go on.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

from benchmarks.harness import ROOT, Bench, Result, Sample, told_alone

NAME = "floors"
PAUSE_S = 0.002  # as of `live`
ENTRY = b"x" * 200
REQUEST = b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$4\r\ntemp\r\n$4\r\n21.5\r\n"
REPLY = b"$15\r\n1700000000000-0\r\n"
CLIENTS = (1, 50)
THREADS = 16
FUTEX, WAIT, WAKE = 202, 0, 1  # of x86-64
OVER = 0xFFFFFFFF
Answer: TypeAlias = Callable[[list[socket.socket]], None]
_WORD = struct.Struct("<I")


def run(bench: Bench) -> list[Result]:
    """A hand-over, a served request, and a shared sync."""
    return [*_hand_over(bench), *_served(bench), _shared_sync(bench)]


class Meeting:
    """A file that is written under a lock, and a word that wakes who waits for it."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self._log = os.open(folder / "log", flags | os.O_APPEND)
        self._lock = os.open(folder / "lock", flags)
        word = os.open(folder / "word", flags)
        os.ftruncate(word, mmap.PAGESIZE)
        self._shared = mmap.mmap(word, mmap.PAGESIZE)
        os.close(word)
        self._at = ctypes.c_void_p(ctypes.addressof(ctypes.c_uint32.from_buffer(self._shared)))
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall

    def write(self) -> None:
        """What a commit writes, under the lock."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._log, ENTRY)
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def value(self) -> int:
        """Of the word."""
        found: int = _WORD.unpack_from(self._shared)[0]
        return found

    def wake(self, value: int) -> None:
        """Set the word, and wake who waits."""
        _WORD.pack_into(self._shared, 0, value)
        self._syscall(FUTEX, self._at, WAKE, 1, None, None, 0)

    def wait(self, value: int) -> None:
        """Until the word is another one."""
        self._syscall(FUTEX, self._at, WAIT, ctypes.c_uint32(value), None, None, 0)


def _hand_over(bench: Bench) -> list[Result]:
    count = bench.size(2_000, 300)
    pauses: list[float] = []
    gives: list[float] = []
    takes: list[float] = []
    for number in range(bench.rounds):
        folder = bench.folder / f"floor-{number}"
        folder.mkdir()
        meeting = Meeting(folder)
        command = [sys.executable, "-m", "benchmarks.floors", str(folder)]
        waiting = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        waiting.stdout.readline()
        began_s = time.process_time()
        for _ in range(count):
            time.sleep(PAUSE_S)
        pauses.append((time.process_time() - began_s) / count * 1e6)
        began_s = time.process_time()
        for value in range(1, count + 1):
            time.sleep(PAUSE_S)
            meeting.write()
            meeting.wake(value)
        gives.append((time.process_time() - began_s) / count * 1e6)
        meeting.wake(OVER)
        takes.append(float(waiting.communicate(timeout=60)[0]))
    note = f"of its process; a pause alone takes {Sample('', pauses).mean:.0f} us"
    return [
        told_alone("the least of a hand-over: a pause, a lock, a write and a wake-up", "us",
                   Sample("bare loop", gives), None, note=note),
        told_alone("the least of what who waited does: it wakes, a lock, a write", "us",
                   Sample("bare loop", takes), None),
    ]  # fmt: skip


def wait(folder: Path) -> None:
    """Be the process that waits; what a round took of its processor time, in microseconds."""
    meeting = Meeting(folder)
    print("ready", flush=True)
    seen, rounds, began_s = meeting.value(), 0, time.process_time()
    while seen != OVER:
        meeting.wait(seen)
        if (now := meeting.value()) != seen:
            seen = now
            meeting.write()
            rounds += 1
    print((time.process_time() - began_s) / rounds * 1e6)


def _served(bench: Bench) -> list[Result]:
    count = bench.size(50_000, 2_000)
    results: list[Result] = []
    for clients in CLIENTS:
        bare = [_answered(bench, _answer, clients, count) for _ in range(bench.rounds)]
        loop = [_answered(bench, _answer_in_loop, clients, count) for _ in range(bench.rounds)]
        results.append(
            told_alone(f"the least of a served request, {clients} clients", "us of the server",
                       Sample("epoll, recv, send", bare), Sample("a protocol of uvloop", loop))
        )  # fmt: skip
    return results


def _answered(bench: Bench, answer: Answer, clients: int, count: int) -> float:
    """Processor time of a child that answers, a request; clients on Unix sockets are here."""
    place = bench.folder / "floor.sock"
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen(clients)
    lines = []
    for _ in range(clients):
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(place))
        lines.append(line)
    heard = [listener.accept()[0] for _ in range(clients)]
    listener.close()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for line in lines:
            line.close()
        try:
            began_s = time.process_time()
            answer(heard)
            os.write(writing, repr(time.process_time() - began_s).encode())
        finally:
            os._exit(0)
    for line in heard:
        line.close()
    _ask(lines, count)
    for line in lines:
        line.close()
    os.waitpid(child, 0)
    took_s = float(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    return took_s / count * 1e6


def _answer(lines: list[socket.socket]) -> None:
    """Answer until all have gone."""
    by_number = {line.fileno(): line for line in lines}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while by_number:
            for number, _ in poll.poll():
                if by_number[number].recv(65536):
                    by_number[number].send(REPLY)
                else:
                    poll.unregister(number)
                    del by_number[number]


class _Answering(asyncio.Protocol):
    def __init__(self, gone: asyncio.Semaphore) -> None:
        self._gone = gone

    def connection_made(self, transport: Any) -> None:
        """Of asyncio; uvloop's transports are of none of its classes."""
        self._write = transport.write

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        """Of asyncio."""
        self._write(REPLY)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Of asyncio."""
        self._gone.release()


def _answer_in_loop(lines: list[socket.socket]) -> None:
    """The same by protocols of uvloop."""

    async def answering() -> None:
        gone, loop = asyncio.Semaphore(0), asyncio.get_running_loop()
        for line in lines:
            await loop.create_connection(lambda: _Answering(gone), sock=line)
        for _ in lines:
            await gone.acquire()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answering())


def _ask(lines: list[socket.socket], count: int) -> None:
    """Requests of these clients by turns, each behind the reply to the one before."""
    by_number = {line.fileno(): line for line in lines}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        for line in lines:
            line.send(REQUEST)
        sent, done = len(lines), 0
        while done < count:
            for number, _ in poll.poll():
                by_number[number].recv(65536)
                done += 1
                if sent < count:
                    by_number[number].send(REQUEST)
                    sent += 1


def _shared_sync(bench: Bench) -> Result:
    """Rates of one thread that writes and syncs, and of threads of which one syncs for all."""
    rounds = bench.size(1_000, 50)
    log = os.open(bench.folder / "synced", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    alone: list[float] = []
    together: list[float] = []
    for _ in range(bench.rounds):
        began_s = time.perf_counter()
        for _ in range(rounds):
            os.write(log, ENTRY)
            os.fdatasync(log)
        alone.append(rounds / (time.perf_counter() - began_s))
        together.append(_led(log, rounds) * THREADS)
    os.close(log)
    times = Sample("", together).mean / Sample("", alone).mean
    return told_alone(
        f"{THREADS} threads that write, and one of them syncs for all", "entries/s",
        Sample(f"{THREADS} threads", together), Sample("one that syncs", alone),
        note=f"{times:.1f} times",
    )  # fmt: skip


def _led(log: int, rounds: int) -> float:
    """Rounds a second: each thread writes, the first one waits for all, syncs, and lets them go."""
    written = threading.Semaphore(0)
    synced = [threading.Semaphore(0) for _ in range(THREADS - 1)]

    def follow(go_on: threading.Semaphore) -> None:
        for _ in range(rounds):
            os.write(log, ENTRY)
            written.release()
            go_on.acquire()

    threads = [threading.Thread(target=follow, args=(each,)) for each in synced]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        os.write(log, ENTRY)
        for _ in synced:
            written.acquire()
        os.fdatasync(log)
        for each in synced:
            each.release()
    for thread in threads:
        thread.join()
    return rounds / (time.perf_counter() - began_s)


if __name__ == "__main__":
    wait(Path(sys.argv[1]))
