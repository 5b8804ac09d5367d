"""How long a rebuild takes: per GB of log and per million nodes, with hints and without.

Two stores: one of large entries, whose log is long, and one of nodes that hold an entry or two, of
which there are many. The index is deleted and the store opened; then the hints as well. Files are
in the page cache: what is measured is work, not the disk. A checkpoint stands at the half.

    python -m tests.power.recovery_time [BYTES [NODES]]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import logstore

SEGMENT_BYTES = 8 << 20
STREAMS = 10
BATCH = 2000
GIB = 1 << 30


class Rebuild(NamedTuple):
    """One rebuild of a store with so many bytes of log and so many nodes."""

    what: str
    hints: bool
    log_bytes: int
    nodes: int
    rebuild_ms: int
    hints_used: int
    segments_scanned: int

    @property
    def s_per_gib(self) -> float:
        """Seconds per GiB of log."""
        return self.rebuild_ms / 1000 / self.log_bytes * GIB

    @property
    def s_per_million(self) -> float:
        """Seconds per million nodes."""
        return self.rebuild_ms / self.nodes * 1000

    def text(self) -> str:
        """A line of the table."""
        return (
            f"{self.what:<14}{'hints' if self.hints else 'no hints':<10}"
            f"{self.log_bytes / (1 << 20):>9.1f} MiB{self.nodes:>10,} nodes{self.rebuild_ms:>8} ms"
            f"{self.s_per_gib:>8.2f} s/GiB{self.s_per_million:>8.2f} s/million nodes"
        )


def build(path: Path, *, entries: int, value_bytes: int, node_max_entries: int) -> None:
    """A store, closed cleanly, with a checkpoint in the middle of its log."""
    with logstore.open(
        path, sync="os", background=False, segment_bytes=SEGMENT_BYTES,
        node_max_entries=node_max_entries,
    ) as store:  # fmt: skip
        share = entries // STREAMS
        for half in range(2):
            for number in range(STREAMS):
                rows = [{"v": b"%06d" % row * (value_bytes // 6)} for row in range(share // 2)]
                store.stream(f"s{number}").add_many(rows, batch=BATCH)
            if not half:
                store.checkpoint()


def rebuild(path: Path, what: str, *, hints: bool) -> Rebuild:
    """Delete the index, and the hints where told so, and open; what that took."""
    shutil.rmtree(path / "index")
    if not hints:
        for hint in (path / "log").glob("*.hint"):
            hint.unlink()
    with logstore.open(path, background=False) as store:
        found = store.recovery
        lengths = [len(store.stream(name)) for name in store.streams()]
        assert len(set(lengths)) == 1
        assert len(lengths) == STREAMS
        nodes = sum(store.stream(name).info().radix_tree_keys for name in store.streams())
    size = sum(each.stat().st_size for each in (path / "log").glob("*.log"))
    return Rebuild(
        what, hints, size, nodes, found["rebuild_ms"], found["hints_used"],
        found["segments_scanned"],
    )  # fmt: skip


def measure(folder: Path, log_bytes: int, nodes: int) -> list[Rebuild]:
    """Both stores, both ways."""
    found: list[Rebuild] = []
    value_bytes = 1200
    cases = (
        ("large entries", log_bytes // value_bytes, value_bytes, 100),
        ("small nodes", nodes * 2, 12, 2),
    )
    for what, entries, size, most in cases:
        path = folder / what.replace(" ", "-")
        build(path, entries=entries, value_bytes=size, node_max_entries=most)
        found += [rebuild(path, what, hints=True), rebuild(path, what, hints=False)]
    return found


def main() -> None:
    """Measure and print."""
    sizes = [int(each) for each in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        for each in measure(Path(folder), *(sizes or [GIB, 1_000_000])):
            print(each.text(), flush=True)


if __name__ == "__main__":
    main()
