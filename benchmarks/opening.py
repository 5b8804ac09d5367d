"""Opening after a clean close, by size of the store; and rebuilding its index from hints."""

from __future__ import annotations

from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, at_most, below, fresh, interleave

NAME = "opening"


def run(bench: Bench) -> list[Result]:
    """Milliseconds of ``logstore.open`` in a fresh process."""
    sizes = [bench.size(full, quick) for full, quick in (
        (100_000, 10_000), (1_000_000, 100_000), (10_000_000, 1_000_000),
    )]  # fmt: skip
    small, middle, large = (data.history(bench, size) for size in sizes)

    def open_ms(path: object) -> float:
        found = fresh("open_store", path)
        assert found["trusted"]
        assert found["body_reads"] == 0
        return float(found["open_ms"])

    labels = (f"{sizes[2]:,} entries", f"{sizes[0]:,} entries")
    samples = interleave(
        2 * bench.rounds, lambda _: open_ms(large), lambda _: open_ms(small), labels
    )
    between = Sample("", [open_ms(middle) for _ in range(bench.rounds)])
    note = f"{sizes[1]:,} entries: {between.mean:.1f} ms"
    return [
        below(f"opening {sizes[2]:,} entries", "ms", samples[0], 50, samples[1], note),
        at_most("opening, flat in size", "ms", *samples, 1.5),
        _rebuild(bench, sizes[2]),
    ]


def _rebuild(bench: Bench, entries: int) -> Result:
    """The index deleted by hand, then opened: with hints, and without them."""
    path = data.history(bench, entries)
    labels = ("from hints", "by reading the segments")

    def rebuild(number: int, *, hints: bool) -> float:
        found = fresh("rebuild", path, int(hints))
        if hints and number < 0:
            used.append(
                f"the whole open, the tail of the log included; {found['hints_used']} hints, "
                f"{found['segments_scanned']} segments read; without the tail "
                f"{found['rebuild_ms']} ms"
            )
        return float(found["open_ms"])

    used: list[str] = []
    samples = interleave(
        bench.rounds, lambda n: rebuild(n, hints=True), lambda n: rebuild(n, hints=False), labels
    )
    name = f"index rebuild of {entries:,} entries"
    return below(name, "ms", samples[0], 1000, samples[1], used[0])
