"""Prevents a count that is not the number of entries, whatever was counted or changed before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore.scan import counting
from tests.scan.look import make_store

NODES = counting.AT_ONCE_NODES + 300


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_entries(tmp_path: Path, seed: int) -> None:
    """Small nodes, so that sums are kept; what changes the stream comes in between."""
    chance = random.Random(seed)
    with make_store(tmp_path / "s", background=False, segment_bytes=1 << 20) as store:
        stream = store["s"]
        stream.add_many(((n + 1, 0), {"n": "1"}) for n in range(2 * NODES * 4) if n % 2)
        top = 4 * NODES * 2
        alive = [entry.id.ms for entry in stream.range()]

        def check() -> None:
            for _ in range(6):
                low, high = sorted(chance.randrange(-5, top + 50) for _ in range(2))
                want = sum(low <= ms <= high for ms in alive)
                assert stream.count(f"{max(low, 0)}", f"{max(high, 0)}") == want - (
                    0 if high >= 0 else want
                )
            assert stream.count(f"{alive[3]}", f"{alive[-3]}") == len(alive) - 5
            assert stream.count(f"({alive[3]}", f"{top * 9}") == len(alive) - 4

        def delete() -> None:
            some = chance.sample(alive, 20)
            stream.delete(*((ms, 0) for ms in some))
            alive[:] = [ms for ms in alive if ms not in set(some)]

        def add() -> None:
            nonlocal top
            count = chance.choice([3, 900, 4 * (counting.BEHIND_MAX_NODES + 9)])
            more = [top + n for n in range(1, count + 1)]
            stream.add_many(((ms, 0), {"n": "2"}) for ms in more)
            alive.extend(more)
            top = more[-1]

        def trim() -> None:
            stream.trim(maxlen=len(alive) - 40, approximate=False)
            del alive[:40]

        def end_again() -> None:
            """All go, and as many come again, of which the first third is at other places."""
            if stream.info().max_deleted_entry_id.ms:
                return  # as Redis, no last ID is below what was deleted
            stream.trim(maxlen=0, approximate=False)
            stream.set_id("1-0")
            third = len(alive) // 3
            kept = [*range(2, third + 2), *alive[third:]]
            stream.add_many(((ms, 0), {"n": "3"}) for ms in kept)
            alive[:] = kept

        check()
        deeds = [delete, add, trim, store.compact, end_again, add]
        chance.shuffle(deeds)
        for deed in deeds:
            deed()
            check()
        store.drop("s")
        assert stream.count("5", "500") == 0
