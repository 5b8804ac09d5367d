"""Many rows of the index at once.

Invariants: what is stored is what storing one by one would store. Decides nothing.
"""

from __future__ import annotations

from logstore.index.txn import IndexTxn


def put_nodes(index: IndexTxn, rows: list[tuple[bytes, bytes]]) -> None:
    """Store the locators of sealed nodes of a stream: sealed values, by ascending keys."""
    with index.txn.cursor(db=index.generation.nodes) as cursor:
        cursor.putmulti(rows)
