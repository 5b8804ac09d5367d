"""Deciding who takes over what is idle: entries go to the consumers that look alive.

Invariants: as of ``claims``: what is gone is removed, never handed over; a consumer that is handed
entries was not seen by that; delivery counts stay as they are until the entries are read.
"""

from __future__ import annotations

import heapq
from itertools import islice

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.streams.reference_policy import removed
from logstore.engine.txn import pel_scan
from logstore.engine.txn.lookup import Lookup
from logstore.ids import StreamID
from logstore.log import groupframe as frames


def reassign(
    state: WriteTxn, stream: bytes, group: bytes, *, min_idle_ms: int, alive_ms: int, count: int
) -> dict[bytes, int]:
    """Hand up to ``count`` entries (0: all) that are idle for ``min_idle_ms``, longest first, to
    consumers seen within ``alive_ms``, each to the one with the fewest pending; how many each got.
    """
    record, found = admin.existing(state, stream, group)
    state.groups.flush()
    since_ms = state.now_ms - alive_ms
    alive = {
        each.number: each
        for each in state.groups.txn.consumers(found.number)
        if each.seen_ms >= since_ms
    }
    if not alive:
        return {}
    idle = pel_scan.by_idle(state.groups.txn, found.number, state.now_ms - min_idle_ms)
    moved = list(islice(idle, count or None))
    held = {number: each.pending for number, each in alive.items()}
    for waiting in moved:  # what is handed over does not weigh on whom it leaves
        if waiting.consumer in held:
            held[waiting.consumer] -= 1
    line = [(pending, alive[number].name, number) for number, pending in held.items()]
    heapq.heapify(line)
    lookup = Lookup(state, record)
    gone: list[StreamID] = []
    items: dict[int, list[tuple[int, int, int, int]]] = {}
    for waiting in sorted(moved):
        if waiting.id not in lookup:
            gone.append(waiting.id)
            continue
        pending, name, number = line[0]
        item = (waiting.id.ms, waiting.id.seq, state.now_ms, waiting.count)
        items.setdefault(number, []).append(item)
        heapq.heapreplace(line, (pending + 1, name, number))
    if gone:
        removed(state, found, gone)
    state.counts["claims"] += sum(map(len, items.values()))
    for number, given in items.items():
        who = alive[number]
        state.emit(
            frames.Claim(found.number, number, who.seen_ms, who.active_ms, tuple(sorted(given)))
        )
    return {alive[number].name: len(given) for number, given in items.items()}
