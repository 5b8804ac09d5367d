"""Handing what is added to those who wait for it, in the commit that adds it.

As the peers' server serves clients that block. Who waits is spared a commit of its own, and gets
what it waited for without LOCK: no process that was put off the processor while it held LOCK
stands between an add and its reader.

Invariants: only to groups that had got all that was there before this commit; what was left over is
for those who come themselves, and so is what came in large batches: an add does not do the work of
reads that share nothing with it. All else as ``handover``.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.shm.wait_words import Waits, line_of
from logstore.engine.waiting import handoff
from logstore.ids import U64_MAX

SERVED_MAX_ENTRIES = 256  # added by one commit to one stream
DEAD_MAX = 4


def hand_out(state: WriteTxn, waits: Waits) -> None:
    """Serve who waits for what this commit added, and say which groups have nothing left."""
    for number, before in state.grown.items():
        record = state.record(number)
        if record is None or not waits.awaited(record.name):
            continue
        added = (record.entries_added - before.entries_added) & U64_MAX
        if added > SERVED_MAX_ENTRIES:
            continue
        # Each takes one or more. Behind some that died nobody is looked for: who is next is woken.
        most = added + DEAD_MAX
        for key, rows in waits.slots.queues({line_of(record.name)}, most=most).items():
            group = state.groups.by_number(key)
            if group is None or group.stream != number:
                continue
            if before.last <= group.last < record.last:
                handoff.hand_over(state, waits, record, group, rows, enough=added)
            if group.last >= record.last:
                state.sated.add(key)
