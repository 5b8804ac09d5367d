"""Many rows of the index at once.

Invariants: what is stored is what storing one by one would store. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from logstore.codec.batch import Place
from logstore.index.keys import LOCATOR, NODE_KEY
from logstore.index.txn import IndexTxn


def put_nodes(index: IndexTxn, stream: int, placed: Sequence[Place]) -> None:
    """Store the locators of sealed nodes of a stream, by ascending master IDs."""
    key_of, value_of = NODE_KEY.pack, LOCATOR.pack
    rows: list[tuple[bytes, bytes]] = []
    for at, (ms, seq), payload_bytes, live, (last_ms, last_seq) in placed:
        key = key_of(stream, ms, seq)
        value = value_of(at, payload_bytes, live, last_ms, last_seq)
        rows.append((key, value + crc32c(value, crc32c(key)).to_bytes(4, "little")))
    with index.txn.cursor(db=index.generation.nodes) as cursor:
        cursor.putmulti(rows)
