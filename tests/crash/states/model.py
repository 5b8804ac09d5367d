"""What a store must hold, reckoned beside it: plain values, and the rules of the operations.

The script gives every ID and every time, and says what it expects of an operation where that is
not plain (who got an entry, what was retained); the model never asks the store.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.crash.states.look import Content

Pairs = list[tuple[bytes, bytes]]


def number(id: str) -> tuple[int, int]:
    """An ID as it is ordered."""
    ms, _, seq = id.partition("-")
    return int(ms), int(seq)


def value(n: int, size: int = 30) -> bytes:
    """A value that names its entry."""
    return (b"%06d" % n) * (size // 6 + 1)


class Model:
    """Streams by name, as ``look.plain`` tells them."""

    def __init__(self, begin: Content | None = None) -> None:
        self.streams: Content = copy.deepcopy(begin) if begin else {}

    def copied(self) -> Content:
        """What it holds now."""
        return copy.deepcopy(dict(sorted(self.streams.items())))

    # -- streams ------------------------------------------------------------------------------
    def make(self, name: str) -> Content:
        """A stream, made if it is not there."""
        if name not in self.streams:
            self.streams[name] = {
                "rows": [], "last": "0-0", "deleted": "0-0", "added": 0, "settings": {},
                "scheduled": [], "producers": (0, 0, 0, 0), "groups": {},
                "expires": None,
            }  # fmt: skip
        found: Content = self.streams[name]
        return found

    def add(self, name: str, id: str, pairs: Pairs) -> None:
        """One entry."""
        stream = self.make(name)
        stream["rows"].append((id, pairs))
        stream["last"] = id
        stream["added"] += 1

    def delete(self, name: str, *ids: str) -> None:
        """Entries by ID."""
        stream = self.streams[name]
        for id in ids:
            left = [row for row in stream["rows"] if row[0] != id]
            if len(left) < len(stream["rows"]):
                stream["rows"] = left
                stream["deleted"] = max(stream["deleted"], id, key=number)

    def trim(self, name: str, maxlen: int) -> None:
        """All but the newest; a trim tells of no deleted ID."""
        rows = self.streams[name]["rows"]
        del rows[: max(0, len(rows) - maxlen)]

    def drop(self, name: str) -> None:
        """The stream goes, with all that hangs on it."""
        self.streams.pop(name)

    # -- groups -------------------------------------------------------------------------------
    def group(self, name: str, group: str) -> Content:
        """A group that is there."""
        found: Content = self.streams[name]["groups"][group]
        return found

    def make_group(self, name: str, group: str, last: str) -> None:
        """A new group."""
        made = {"last": last, "settings": {}, "pending": [], "consumers": []}
        self.make(name)["groups"][group] = made
        self.streams[name]["groups"] = dict(sorted(self.streams[name]["groups"].items()))

    def consumer(self, name: str, group: str, who: str) -> None:
        """A consumer, made if it is not there."""
        found = self.group(name, group)
        found["consumers"] = sorted({*found["consumers"], who})

    def read(self, name: str, group: str, who: str, now_ms: int, count: int) -> None:
        """What is new to the group, pending with this consumer then."""
        found = self.group(name, group)
        self.consumer(name, group, who)
        new = [id for id, _ in self.streams[name]["rows"] if number(id) > number(found["last"])]
        for id in new[:count]:
            self.pend(name, group, id, who, 1, now_ms)
            found["last"] = id

    def pend(
        self, name: str, group: str, id: str, who: str | None, count: int, at_ms: int | None
    ) -> None:
        """An entry is pending so from now on."""
        found = self.group(name, group)
        left = [row for row in found["pending"] if row[0] != id]
        found["pending"] = sorted([*left, (id, who, count, at_ms)], key=lambda row: number(row[0]))
        if who is not None:
            self.consumer(name, group, who)

    def ack(self, name: str, group: str, *ids: str) -> None:
        """No longer pending."""
        found = self.group(name, group)
        found["pending"] = [row for row in found["pending"] if row[0] not in ids]

    def remove_consumer(self, name: str, group: str, who: str) -> None:
        """A consumer goes, with what is pending with it."""
        found = self.group(name, group)
        found["consumers"] = [each for each in found["consumers"] if each != who]
        found["pending"] = [row for row in found["pending"] if row[1] != who]

    # -- the rest -----------------------------------------------------------------------------
    def settings(self, name: str, group: str | None = None, **changes: Any) -> None:
        """Settings that are kept; None takes one away."""
        found = self.make(name) if group is None else self.group(name, group)
        kept = {**found["settings"], **changes}
        found["settings"] = {key: kept[key] for key in kept if kept[key] is not None}

    def schedule(self, name: str, due_ms: int, pairs: Pairs) -> None:
        """An entry that waits."""
        stream = self.make(name)
        stream["scheduled"] = sorted(
            [*stream["scheduled"], (due_ms, pairs)], key=lambda row: row[0]
        )

    def unschedule(self, name: str, due_ms: int) -> Pairs:
        """It waits no longer; its fields."""
        stream = self.streams[name]
        (pairs,) = [row[1] for row in stream["scheduled"] if row[0] == due_ms]
        stream["scheduled"] = [row for row in stream["scheduled"] if row[0] != due_ms]
        return list(pairs)

    def produced(self, name: str, *, ids: int, producers: int, added: int, twice: int) -> None:
        """What is remembered of idempotent adds, in sum."""
        self.make(name)["producers"] = (producers, ids, added, twice)
