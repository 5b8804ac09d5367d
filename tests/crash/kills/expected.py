"""What one writer must have left in the store, told by its journal, and whether it did."""

from __future__ import annotations

from collections import Counter

import logstore
from tests.crash.kills import names, operations, own_streams, takeover
from tests.crash.kills.crew import Crew
from tests.crash.kills.journal import Reader
from tests.crash.kills.own_streams import Result, Step


class Expected:
    """The state of its own streams, what it added to shared ones, and what it had begun."""

    def __init__(self, slot: int, crew: Crew) -> None:
        self.slot, self.crew = slot, crew
        self.state = own_streams.empty()
        self.shared: list[str] = []
        self.soon: list[str] = []
        self.perhaps_soon: set[str] = set()
        self.remembered: list[tuple[str, str]] = []
        self.send_again: tuple[str, str] | None = None
        self.pending: Step | None = None  # begun, and not acknowledged
        self.number = self.cut_off = self.found_done = 0
        self.kinds: Counter[str] = Counter()
        self.of_lane: Counter[str] = Counter()

    def follow(self, reader: Reader, commits: takeover.Commits) -> None:
        """Follow the journal as far as it is written."""
        for line in reader.lines():
            if "op" in line:
                self.begun(line)
                continue
            self.of_lane.update(dict(zip(("adds", "reads", "acks"), line["lane"], strict=False)))
            if self.ended(line["n"], line["result"]):
                commits.add(line["t"], self.slot)

    def begun(self, step: Step) -> None:
        """It is about to do this."""
        self.number, self.pending = step["n"], step
        self.crew.begun(self.slot, step)

    def ended(self, number: int, result: Result) -> bool:
        """It has done it; whether it cannot have done so without a commit."""
        step, self.pending = self.pending, None
        assert step is not None
        assert step["n"] == number
        own_streams.change(self.state, step, result)
        self.crew.ended(self.slot, step, result)
        refused = bool(result.get("refused"))
        if step["op"] == "idem":
            self._remember(step["tags"][0], result["ids"][0])
        if "shared" in step and not refused:
            self.shared.append(step["shared"])
        if step["op"] == "soon":
            self.soon.append(step["tag"])
        self.kinds[step["op"]] += 1
        if step["op"] in operations.COMMITS:
            return not refused
        return bool(result.get("took") or step.get("ids"))

    def _remember(self, tag: str, id: str) -> None:
        self.remembered = [*self.remembered, (tag, id)][-5:]

    def settle(self, store: logstore.Store[bytes]) -> bool:
        """It ended where it was: what it had begun happened whole or not at all; whether it did."""
        self.crew.died(self.slot, self.pending)
        found = own_streams.read_own(store, self.slot)
        step, self.pending, self.send_again = self.pending, None, None
        if step is None:
            assert found == self.state, own_streams.difference(found, self.state)
            return False
        self.cut_off += 1
        there = own_streams.happened(self.state, found, step)
        if "shared" in step:
            entries = store.stream(names.SHARED).range(count=3000, reverse=True)
            added = any(entry.fields[b"t"] == step["shared"].encode() for entry in entries)
            if step["op"] == "tx":
                assert there == added, f"half a transaction: {step}"
            there = added
            if added:
                self.shared.append(step["shared"])
        elif step["op"] == "idem":
            self.send_again = (step["tags"][0], found["rows"][-1][0] if there else "")
            if there:
                self._remember(*self.send_again)
        elif step["op"] == "soon":
            self.perhaps_soon.add(step["tag"])
        self.found_done += there
        self.state = found
        return there

    def settle_soon(self, store: logstore.Store[bytes]) -> None:
        """What was scheduled for soon waits or was added, and was added once."""
        stream = store.stream(names.soon(self.slot))
        waiting = [each.fields[b"t"].decode() for each in stream.scheduled()]
        added = [tag for _, tag in names.tagged(store, names.soon(self.slot), names.SMALL)]
        assert len(set(added)) == len(added), "a scheduled entry was added twice"
        missing = set(self.soon) - set(waiting) - set(added)
        assert not missing, f"scheduled, and neither waiting nor added: {sorted(missing)[:5]}"
        assert {*waiting, *added} <= {*self.soon, *self.perhaps_soon}


def settle_ticks(store: logstore.Store[bytes]) -> None:
    """What repeats came once at each of its times at most, never early, and goes on."""
    stream = store.stream(names.TICKS)
    came = [entry.id.ms for entry in stream]  # first: while the store is open, more may come
    (following,) = stream.scheduled()
    before = [(ms - following.key.due_ms) // names.TICK_MS for ms in came]
    assert len(set(before)) == len(before), "a schedule that repeats came twice at one time"
    assert before, "a schedule that repeats came at none of its times"
    assert max(before) < 0, "a schedule that repeats came, and is scheduled for the same time"
