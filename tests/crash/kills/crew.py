"""The group that all writers share: what must hold of it, told by all of their journals.

Nobody has a model of it: who gets which entry is decided by the race. But each entry is handed out
at one delivery count to one consumer; what was handed out is pending, acked or dead; what was
acked, or is dead, is never pending again; and pending with whom it was handed to last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import logstore
from tests.crash.kills import names
from tests.crash.kills.own_streams import Result, Step


class Crew:
    """What the journals say about the shared group so far."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], str] = {}  # ID and delivery count: the consumer
        self.acked: set[str] = set()
        self.perhaps_acked: Counter[str] = Counter()  # begun, and not acknowledged
        self.given_back: set[str] = set()  # begun or done
        self.under_way: dict[int, Step] = {}  # by slot
        self.unseen: dict[str, int] = {}  # deliveries that a consumer may not have lived to see
        self.acks = 0

    def begun(self, slot: int, step: Step) -> None:
        """A writer is about to do this."""
        self.under_way[slot] = step
        self.perhaps_acked.update(_acks(step))
        if step["op"] == "give":
            self.given_back.update(step["ids"])

    def ended(self, slot: int, step: Step, result: Result) -> None:
        """It has done it."""
        self.under_way.pop(slot, None)
        for id, count in result.get("took", ()):
            before = self.taken.setdefault((id, count), f"w{slot}")
            assert before == f"w{slot}", f"delivery {count} of {id} went to {before} and w{slot}"
        done = list(_acks(step))
        self.perhaps_acked -= Counter(done)  # what is 0 goes
        if not result.get("refused"):
            self.acked.update(done)
            self.acks += len(done)

    def died(self, slot: int, pending: Step | None) -> None:
        """A writer was killed; with an operation under way, if there is one."""
        self.under_way.pop(slot, None)
        if pending is not None and pending["op"] == "take":
            who = f"w{slot}"
            self.unseen[who] = self.unseen.get(who, 0) + pending["count"]

    def known(self) -> tuple[set[str], set[str]]:
        """What was handed out, and what was acked, as far as it was acknowledged by now."""
        return {id for id, _ in self.taken}, set(self.acked)

    def check(
        self, pending: list[Any], dead_lettered: list[str], handed: set[str], acked: set[str]
    ) -> None:
        """``handed`` and ``acked`` were known before ``pending`` was read; the journals went on,
        and were taken in, and ``dead_lettered`` was read, since then.
        """
        assert len(set(dead_lettered)) == len(dead_lettered), "an entry is dead twice"
        there = {str(row.id) for row in pending}
        assert not there & acked, f"acked, and pending: {sorted(there & acked)[:5]}"
        lost = handed - there - self.acked - set(self.perhaps_acked) - set(dead_lettered)
        assert not lost, f"handed out, and neither pending nor acked: {sorted(lost)[:5]}"
        unseen: dict[str, int] = {}
        busy = {f"w{slot}" for slot, step in self.under_way.items() if step["op"] == "take"}
        for row in pending:
            id = str(row.id)
            if row.consumer is None:
                assert id in self.given_back, f"{id} is nobody's, and nobody gave it back"
                continue
            who = row.consumer.decode()
            if who in busy:
                continue
            if self.taken.get((id, row.delivery_count)) != who:
                unseen[who] = unseen.get(who, 0) + 1
        for who, count in unseen.items():
            most = self.unseen.get(who, 0)
            assert count <= most, f"{count} pending with {who}, who asked for {most} of them"

    def check_at_rest(self, store: logstore.Store[bytes]) -> None:
        """Nobody works: what is counted, and that nothing went without an ack."""
        group = store.stream(names.SHARED).group(names.CREW)
        info, pending = group.info(), list(group.pending_entries())
        handed, acked = self.known()
        dead_lettered = dead_ids(store)
        self.check(pending, dead_lettered, handed, acked)
        assert not set(dead_lettered) & {str(row.id) for row in pending}
        ids = [str(entry.id) for entry in store.stream(names.SHARED).range()]
        last = names.number(str(info.last_delivered_id))
        read = [id for id in ids if names.number(id) <= last]
        assert (info.entries_read or 0, info.lag) == (len(read), len(ids) - len(read))
        gone = set(read) - {str(row.id) for row in pending} - set(dead_lettered)
        assert gone <= self.acked | set(self.perhaps_acked), "an entry went without an ack"
        assert info.pending == group.pending().count == len(pending)
        for each in group.consumers():
            assert each.pending == sum(row.consumer == each.name for row in pending)


def _acks(step: Step) -> Iterable[str]:
    """What a step acks in the shared group."""
    found: Iterable[str] = step["ids"] if step["op"] == "done" else step.get("done", ())
    return found


def dead_ids(store: logstore.Store[bytes]) -> list[str]:
    """The IDs in the shared stream of what is dead."""
    stream = store.stream(names.CREW_DEAD)
    return [entry.fields[b"origin_id"].decode() for entry in stream.range()]
