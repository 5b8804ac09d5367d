"""Consumer groups in a checkpoint: copied out of the index, and loaded into an empty one.

Invariants: a group's record, consumers and pending entries are read in one snapshot, so that its
position says for all of them which frames they have seen; replay then passes over those frames.
Runs are copied as they are stored.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.index.group_keys import ConsumerRecord, GroupRecord, PendingRun

RUNS_A_CHUNK = 500


def chunks(engine: Engine) -> list[dict[str, Any]]:
    """The chunks of all groups."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        taken = snapshot.read(engine, partial(_group, after=after))
        if taken is None:
            return found
        after, consumers, runs = taken[0][0], taken[1], taken[2]
        found.append({"kind": "groups", "rows": [[*taken[0], consumers]]})
        found += [
            {"kind": "pending", "rows": [[after, run] for run in runs[at : at + RUNS_A_CHUNK]]}
            for at in range(0, len(runs), RUNS_A_CHUNK)
        ]


def _group(
    view: Snapshot, after: int
) -> tuple[tuple[int, bytes], list[tuple[int, bytes]], list[bytes]] | None:
    """The next group: its record, consumers and runs, packed."""
    txn = view.index.groups
    group = next(iter(txn.all_groups(after)), None)
    if group is None:
        return None
    consumers = [(each.number, each.pack()) for each in txn.consumers(group.number)]
    return (group.number, group.pack()), consumers, [run.pack() for run in txn.runs(group.number)]


def load(state: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk of groups, or of pending entries, into the index."""
    txn = state.groups.txn
    for row in chunk["rows"]:
        if chunk["kind"] == "pending":
            number, packed = row
            txn.put_run(number, PendingRun.unpack(packed))  # made here: no row is its yet
            continue
        number, packed, consumers = row
        group = GroupRecord.unpack(number, packed)
        txn.put_name(group)
        txn.put_group(group)
        for consumer_number, packed_consumer in consumers:
            consumer = ConsumerRecord.unpack(consumer_number, packed_consumer)
            txn.put_consumer(number, consumer)
            txn.put_consumer_name(number, consumer)
