"""An RDB file with one stream of simple entries, imported, and loaded by Redis at its start.

Redis is timed from its start until PING is answered; ours in a fresh process, from the call
to the return, into a store that was just made, under everysec.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import logstore
from benchmarks import peer
from benchmarks.harness import Bench, Result, at_most, fresh, interleave
from logstore.transfer import export_file

NAME = "importing"
POLL_S = 0.001
GIVE_UP_S = 60.0
T0_MS = 1_700_000_000_000


def run(bench: Bench) -> list[Result]:
    """Seconds for the whole file."""
    entries = bench.size(5_000_000, 1_000_000)
    folder = bench.folder / "importing"
    folder.mkdir()
    file = folder / "dump.rdb"
    _make(folder / "source", file, entries)
    megabytes = file.stat().st_size / 1e6

    def ours(_round: int) -> float:
        store = folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        took: float = fresh("import_rdb", store, file)
        return took

    samples = interleave(
        bench.rounds, ours, lambda _: _loaded(file, entries), ("logstore", "Redis, loading")
    )
    note = f"{entries:,} entries, {megabytes:.0f} MB"
    return [at_most("import of an RDB file", "s", *samples, 1.5, note)]


def _make(store: Path, file: Path, entries: int) -> None:
    with logstore.open(store, sync="os") as opened:
        rows = (
            ((T0_MS + at // 3, at % 3), {"rider": "Castilla", "speed": at % 100})
            for at in range(entries)
        )
        opened.stream("s").add_many(rows, batch=10_000)
        export_file(opened, file)
    shutil.rmtree(store)


def _loaded(file: Path, entries: int) -> float:
    """How long Redis takes until it answers."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    started = time.perf_counter()
    process = subprocess.Popen(
        [str(peer.binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
         str(file.parent), "--dbfilename", file.name],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not _answers(port):
            if time.perf_counter() - started > GIVE_UP_S or process.poll() is not None:
                raise RuntimeError("Redis does not load the file")
            time.sleep(POLL_S)
        took = time.perf_counter() - started
        assert peer.connect(port).xlen("s") == entries
        return took
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith(b"+PONG")
    except OSError:
        return False
