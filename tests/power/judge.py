"""Is what a power cut left what it may leave? Compares with what was acknowledged; pure.

Invariants: what is there is a prefix, in the order of commits, of what was acknowledged, and at
most one operation of each writer more, whole; what was settled before, made durable, or
acknowledged under ``always`` is in it; of what was acknowledged under ``everysec``, nothing older
than the interval and one sync is missing.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore.options import SYNC_INTERVAL_MS, Sync
from tests.power.intents import ID, Op, Owned, parse

Mark = tuple[ID, str]


class BrokenError(AssertionError):
    """A promise that was not kept."""


@dataclass
class Done:
    """One operation of a writer in this round."""

    op: Op
    order: list[ID] = field(default_factory=list)
    mine: list[ID] = field(default_factory=list)
    at: float | None = None  # when it was acknowledged; None: it was not

    @property
    def marks(self) -> list[str]:
        """Tags of its entries in ORDER."""
        found: list[str] = self.op.get("marks", [])
        return found


@dataclass
class Round:
    """What one writer did, and under which policy."""

    policy: Sync
    done: list[Done]
    failed: str = ""  # with which error it ended by itself
    failed_at: float = 0.0
    of_lane: Counter[str] = field(default_factory=Counter)  # entries added, delivered, acked

    @staticmethod
    def read(journal: Path, policy: Sync) -> Round:
        """From its journal."""
        found = Round(policy, [])
        lines = journal.read_bytes().splitlines() if journal.exists() else []
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if "op" in said:
                found.done.append(Done(said))
            elif "failed" in said:
                found.failed, found.failed_at = said["failed"], said["at"]
            else:
                last = found.done[-1]
                last.at = said["at"]
                found.of_lane.update(
                    dict(zip(("adds", "reads", "acks"), said["lane"], strict=True))
                )
                last.order = [parse(each) for each in said["order"]]
                last.mine = [parse(each) for each in said["mine"]]
        return found


@dataclass
class Store:
    """What a store must hold, settled by the last time it was opened."""

    order: list[Mark] = field(default_factory=list)
    owned: dict[int, Owned] = field(default_factory=dict)


@dataclass
class Outcome:
    """What became of one cut."""

    acknowledged: Counter[str] = field(default_factory=Counter)  # operations, by policy
    lost: Counter[str] = field(default_factory=Counter)  # of these
    lost_entries: Counter[str] = field(default_factory=Counter)  # their marks in ORDER
    window_s: float = 0.0  # age of the oldest loss under everysec


def settle(
    before: Store, found: Store, rounds: dict[int, Round], cut_at: float, slack_s: float
) -> Outcome:
    """Compare; ``before`` becomes what was found. ``slack_s``: a sync, and the machine's stalls."""
    outcome = Outcome()
    present = {tag for _, tag in found.order}
    _check_prefix(before, found, rounds)
    reach = _must_reach(rounds, cut_at)
    for slot, its in rounds.items():
        count = _survivors(its, present)
        kept = _match(before.owned.get(slot, Owned()), found.owned[slot], its, count)
        for place, each in enumerate(its.done):
            if each.at is None:
                continue
            policy = its.policy
            outcome.acknowledged[policy] += 1
            if place < kept or (policy == "always" and each.at >= cut_at):
                continue  # there, or said while the power was cut: see ``_must_reach``
            outcome.lost[policy] += 1
            outcome.lost_entries[policy] += len(each.marks)
            age = cut_at - each.at
            if policy == "everysec":
                outcome.window_s = max(outcome.window_s, age)
            firm = _firm(each, policy) and each.at < cut_at
            if firm or each.at < reach.at or (each.order and each.order[-1] <= reach.id):
                raise BrokenError(
                    f"lost, though it was made durable {age:.3f} s before the cut: {each}"
                )
            if policy == "everysec" and age > SYNC_INTERVAL_MS / 1000 + slack_s:
                raise BrokenError(
                    f"lost {age:.3f} s after it was acknowledged (+{slack_s:.3f}): {each}"
                )
    before.order, before.owned = found.order, found.owned
    return outcome


@dataclass
class _Reach:
    """Up to where something made all durable that came before."""

    at: float = 0.0
    id: ID = (0, 0)


def _must_reach(rounds: dict[int, Round], cut_at: float) -> _Reach:
    """A commit under ``always`` makes all before it durable, and so does ``sync``.

    Not if it was acknowledged while the power was cut, which takes milliseconds: the system says so
    of syncs then that are not kept, also where there is no store (``tests.power.plain_file_cuts``).
    """
    found = _Reach()
    for its in rounds.values():
        for each in its.done:
            if each.at is None or each.at >= cut_at:
                continue
            if each.op["op"] == "sync" or _firm(each, its.policy):
                found.at = max(found.at, each.op["at"])
                found.id = max([found.id, *each.order])
    return found


def _firm(done: Done, policy: Sync) -> bool:
    return policy == "always" or bool(done.op.get("firm"))


def _check_prefix(before: Store, found: Store, rounds: dict[int, Round]) -> None:
    """ORDER holds what it held, then a prefix of what was acknowledged; whole operations only."""
    count = len(before.order)
    if found.order[:count] != before.order:
        raise BrokenError(
            f"gone or changed since the store was opened last: {_diff(before, found)}"
        )
    open_tags = {
        tag: slot
        for slot, its in rounds.items()
        for each in its.done
        if each.at is None
        for tag in each.marks
    }
    acknowledged = sorted(
        (id, tag)
        for its in rounds.values()
        for each in its.done
        if each.at is not None
        for id, tag in zip(each.order, each.marks, strict=True)
    )
    rest = found.order[count:]
    known = [mark for mark in rest if mark[1] not in open_tags]
    if known != acknowledged[: len(known)]:
        raise BrokenError(
            f"a hole: {known[-3:]} stand there, not {acknowledged[: len(known)][-3:]}"
        )
    lost = acknowledged[len(known) :]
    if rest and lost and rest[-1][0] >= lost[0][0]:
        raise BrokenError(f"a hole: {lost[0]} is lost, {rest[-1]} behind it is there")
    tags = {tag for _, tag in rest}
    for its in rounds.values():
        for each in its.done:
            there = sum(tag in tags for tag in each.marks)
            if there not in (0, len(each.marks)):
                raise BrokenError(f"half there: {there} of {each}")


def _survivors(its: Round, present: set[str]) -> int:
    """How many operations are there for certain: up to the last with a mark in ORDER."""
    marked = [place for place, each in enumerate(its.done) if each.marks]
    there = [place for place in marked if its.done[place].marks[0] in present]
    if there != marked[: len(there)]:
        raise BrokenError(f"a hole in the operations of one writer: {there} of {marked}")
    return there[-1] + 1 if there else 0


def _match(before: Owned, found: Owned, its: Round, count: int) -> int:
    """After how many operations the writer's own stream and group stood as they are found.

    Those behind the last mark that is there have no mark themselves: any number of them may be.
    """
    now = before
    matched = -1
    for place in range(len(its.done) + 1):
        if place >= count and now == found:
            matched = place
        if place == len(its.done) or (place >= count and its.done[place].marks):
            break
        each = its.done[place]
        if each.at is None and not each.marks and _absent(found, each):
            break
        ids = each.mine if each.at is not None else _given(found, each)
        now = now.after(each.op, ids)
    if matched < 0:
        raise BrokenError(
            f"the stream or group of one writer is not as after {count} of {len(its.done)} "
            f"operations, the last of them {its.done[max(0, count - 1) :][:2]}: "
            f"{found} is not {now}"
        )
    return matched


def _absent(found: Owned, each: Done) -> bool:
    """Whether nothing that an operation was to add is there."""
    tags = each.op.get("own", [])
    return bool(tags) and not any(tag in tags for _, tag in found.entries)


def _given(found: Owned, each: Done) -> list[ID]:
    """The IDs of an operation that was not acknowledged, from what is there."""
    tags = each.op.get("own", [])
    ids = [id for id, tag in found.entries if tag in tags]
    if len(ids) != len(tags):
        raise BrokenError(f"half there: {len(ids)} of {each}")
    return ids


def _diff(before: Store, found: Store) -> str:
    missing = [mark for mark in before.order if mark not in set(found.order)]
    return f"{missing[:3]} ({len(missing)})"
