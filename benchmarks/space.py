"""Bytes on disk: of a large stream after compaction over its nodes, and of many small streams."""

from __future__ import annotations

import shutil
from pathlib import Path

import logstore
from benchmarks import data, opening, peers
from benchmarks.harness import Bench, Result, Sample, below
from logstore.api.store import Store
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.format import NODE_BODY
from logstore.fs import LOCAL

NAME = "space"


def run(bench: Bench) -> list[Result]:
    """Ratios and bytes; files count with the blocks they occupy."""
    return [_loaded(bench), _history(bench), *_streams(bench)]


def _loaded(bench: Bench) -> Result:
    """Rows as they were loaded, a thousand at a time, not compacted; beside the same in SQLite."""
    entries = bench.size(200_000, 50_000)
    path = bench.folder / "loaded"
    with logstore.open(path) as store:
        store.stream(data.STREAM).add_many(data.rows(entries), batch=1000)
        nodes = _node_bytes(store)
    with peers.open_all(bench.folder / "loaded-peers", (peers.SQLite,)) as (lite,):
        lite.add_many(data.rows(entries))
    theirs = peers.sqlite_bytes(bench.folder / "loaded-peers") / entries
    note = f"nodes {nodes / entries:.1f} bytes an entry, " + _parts(path)
    ours = Sample("logstore", [LOCAL.tree_bytes(path) / entries])
    limit = (1.15 * nodes + 2 * 2**20) / entries
    peer = Sample("SQLite", [theirs])
    return below(f"bytes an entry, {entries:,} loaded", "bytes", ours, limit, peer, note)


def _node_bytes(store: Store[bytes]) -> int:
    """The listpacks themselves, sealed and open."""

    def count(view: Snapshot) -> int:
        sealed = sum(
            locator.payload_bytes - NODE_BODY.size for _, _, _, locator in view.index.all_nodes()
        )
        opens = (view.open_node(record.number) for record in view.index.records())
        return sealed + sum(len(node.lp or b"") for node in opens if node is not None)

    return snapshot.read(store._engine(), count)


def _parts(path: Path) -> str:
    """Where the bytes are."""
    sizes: dict[str, int] = {}
    for file in path.rglob("*"):
        if file.is_file():
            kind = file.suffix or file.name
            sizes[kind] = sizes.get(kind, 0) + file.stat().st_blocks * 512
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in largest if size > 1e5)


def _history(bench: Bench) -> Result:
    entries = bench.size(10_000_000, 1_000_000)
    path = bench.folder / "compacted"
    shutil.copytree(data.history(bench, entries), path)
    with logstore.open(path) as store:
        store.compact()
        nodes = _node_bytes(store)
    disk = LOCAL.tree_bytes(path)
    note = f"nodes {nodes / 1e6:.1f} MB, " + _parts(path)
    sample = Sample("whole directory over nodes", [disk / nodes])
    return below(f"{entries:,} entries after compaction", "x", sample, 1.15, None, note)


def _streams(bench: Bench) -> list[Result]:
    count = bench.size(100_000, 10_000)
    path = bench.folder / "streams"
    with logstore.open(path, sync="os") as store:
        for number in range(count):
            store.stream(f"sensor:{number:06d}").add_many(data.rows(1 + number % 3, number))
    disk = LOCAL.tree_bytes(path)
    sample = Sample("bytes of a stream", [disk / count])
    took = [opening.opened_ms(bench, path) for _ in range(2 * bench.rounds + 1)][1:]
    return [
        below(f"{count:,} streams of 1-3 entries", "bytes", sample, 600, None, _parts(path)),
        below(f"a process that opens {count:,} streams", "ms", Sample("logstore", took), 50),
    ]
