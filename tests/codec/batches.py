"""What a batch is, row by row."""

from __future__ import annotations

import random
from typing import Any

from logstore.codec import Codec
from logstore.codec import pure as pure_codec
from logstore.format import FRAME_HEAD_AFTER_CRC, FRAME_MARK, Kind
from logstore.rdb.rdb_writer import string

COVERED = FRAME_HEAD_AFTER_CRC.pack(5 << 32, 0, 7, 8, 9, Kind.NODE, 0, FRAME_MARK)


def stored(seed: int, count: int = 12) -> tuple[bytes, list[int]]:
    """Nodes in a row as RDB has them, and the offsets behind them."""
    rng = random.Random(seed)
    data = bytearray()
    ends: list[int] = []
    top = (1, 0)
    for _ in range(count):
        master = (top[0] + rng.randint(1, 300), rng.randint(0, 3))
        fields = [b"f", b"x" * rng.choice((1, 60, 70, 5000))]
        lp = pure_codec.new_node(*master, fields)
        top = master
        for _ in range(rng.randint(0, 6)):
            top = (top[0] + rng.randint(0, 2), top[1] + 1)
            lp, _ = pure_codec.append(lp, *master, *top, rng.choice((fields, [b"g", b"1"])))
        doomed = [at for at in range(pure_codec.counts(lp)[0]) if rng.random() < 0.3]
        lp = pure_codec.mark_deleted(lp, doomed) if doomed else lp
        data += string(master[0].to_bytes(8, "big") + master[1].to_bytes(8, "big")) + string(lp)
        ends.append(len(data))
    return bytes(data), ends


def batch_facts(codec: Codec, data: bytes, at: int = 0, most: int = 99, **before: Any) -> Any:
    """All that a batch tells."""
    master, top = before.get("master"), before.get("top", (0, 0))
    batch = codec.NodeBatch(data, at, most, master, top)
    return (
        len(batch), batch.end, batch.live, batch.nbytes, batch.first, batch.top, batch.last,
        batch.master, batch.payloads(7), batch.places(100, 32),
        batch.frames(7, COVERED, 99), batch.rows(7, 100, 32) if len(batch) else None,
    )  # fmt: skip
