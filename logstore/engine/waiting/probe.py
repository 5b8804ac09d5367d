"""What a group could give to a reader that waits, and when: looked up before it commits a read.

Invariants: this reads a snapshot and changes nothing. It sees what ``groups.deliver.read_new``
would hand out, and passes over what that passes over. For how long an entry must be idle for a
reader, and so when the next one becomes claimable, ``groups.deliver`` alone decides.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine.groups import admin, dead_letter, deliver
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.waiters import NEW_ONLY
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import GIVEN_BACK_MS
from logstore.features.setting_rows import SettingRows
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.options import GroupSettings
from logstore.tuples import NamedTuple


class AvailableEntries(NamedTuple):
    """What is available for one reader."""

    group: int  # its number: one that was made anew has another
    fresh: bool  # something that nobody got yet
    min_idle_ms: int  # as its waiter record has it: what it takes besides new entries
    oldest_ms: int | None = None  # last delivery of what it could claim first, now or later
    claimable_at_ms: int | None = None  # when that is idle for long enough

    def claimable(self, now_ms: int) -> bool:
        """Whether there is something to claim."""
        return self.claimable_at_ms is not None and self.claimable_at_ms <= now_ms

    def suits(self, min_idle_ms: int, now_ms: int) -> bool:
        """Whether a reader with this minimum idle time would take what can be claimed."""
        return self.oldest_ms is not None and min_idle_ms <= now_ms - self.oldest_ms


def probe(
    view: Snapshot,
    stream: bytes,
    group: bytes,
    asked_idle_ms: int | None,
    *,
    first: bool = True,
    noack: bool = False,
) -> AvailableEntries | None:
    """What a reader could be given; None if there is no such group.

    With ``first`` it takes whatever there is: if something is fresh, what is idle is not looked up.
    """
    record = view.record(stream)
    found = None if record is None else view.index.group(record.number, group)
    if record is None or found is None:
        return None
    settings = SettingRows(view.index).group(found.number)
    idle_ms = deliver.redelivery_idle_ms(settings, asked_idle_ms, noack=noack)
    fresh = _fresh(view, record, found)
    min_idle = min_idle_ms(settings, asked_idle_ms, noack=noack)
    if idle_ms is None or not found.pending or (fresh and first):
        return AvailableEntries(found.number, fresh, min_idle, None, None)
    clears = dead_letter.clears(settings)  # then what is gone is there for a read, too
    among = _anything if clears else Lookup(view, record).__contains__
    first_id = ZERO_ID if clears else nodes.first_id(record)
    groups = view.index.groups
    first_due = deliver.claimable_first(groups, found.number, among, first_id, idle_ms)
    oldest_ms, at_ms = (None, None) if first_due is None else first_due
    return AvailableEntries(found.number, fresh, min_idle, oldest_ms, at_ms)


def min_idle_ms(settings: GroupSettings[bytes], asked_idle_ms: int | None, *, noack: bool) -> int:
    """The minimum idle time in a reader's waiter record: what it takes besides new entries."""
    idle_ms = deliver.redelivery_idle_ms(settings, asked_idle_ms, noack=noack)
    # A reader that asks for more takes only what was given back.
    return NEW_ONLY if idle_ms is None else min(idle_ms, GIVEN_BACK_MS)


def drained(engine: Engine, stream: bytes, group: bytes, number: int, consumer: bytes) -> int:
    """The number of a consumer that reads new entries only, if there are none, and it was seen so
    lately that a read that finds nothing would write nothing; else 0. Of a moment behind the call.
    """
    lane = engine.lane
    found = 0 if lane is None else lane.drained(stream, number, consumer)
    return found or snapshot.read(engine, nothing_new, stream, group, number, consumer)


def nothing_new(view: Snapshot, stream: bytes, group: bytes, number: int, consumer: bytes) -> int:
    """The consumer's number if a snapshot has nothing new for it, as ``drained`` says; else 0."""
    record = view.record(stream)
    found = None if record is None else view.index.group(record.number, group)
    if record is None or found is None or found.number != number or found.last < record.last:
        return 0
    if deliver.redelivery_idle_ms(SettingRows(view.index).group(number), None) is not None:
        return 0
    groups_txn = view.index.groups
    who = groups_txn.consumer_number(number, consumer)
    known = None if who is None else groups_txn.consumer(number, who)
    return known.number if known is not None and admin.lately(known.seen_ms, view.now_ms) else 0


def _anything(_: StreamID) -> bool:
    return True


def _fresh(view: Snapshot, record: StreamRecord, group: GroupRecord) -> bool:
    """Whether there is an entry above the group's last delivered ID."""
    if not record.length or group.last >= record.last:
        return False
    start = group.last.next()
    for ref in nodes.refs(view, record, start):
        if ref.live:
            lp, vector = nodes.listpack(view, record, ref)
            if codec().entries(lp, *ref.master, vector, start, MAX_ID, 1):
                return True
    return False
