"""Idempotent adds in the model: what is remembered of each producer."""

from __future__ import annotations

from typing import Any

from tests.model.groups import ID, Pairs
from tests.model.streams import Streams

REMEMBERS = ("idempotent_duration_s", "idempotent_max_ids")


class Idempotent(Streams):
    """Each producer's newest IDs, as many and as long as the settings say."""

    def add_once(self, name: bytes, pairs: Pairs, producer: bytes, iid: bytes) -> ID:
        """Add one entry if this producer did not add it before."""
        stream = self.existing(name)
        expired = self.now - stream.settings["idempotent_duration_s"] * 1000
        mine = [row for row in stream.remembered if row[0] == producer]
        known = next((row[2] for row in mine if row[1] == iid), None)
        fresh = known is None or known[0] <= expired or known not in stream.entries
        if fresh:
            mine = sorted((row for row in mine if row[1] != iid), key=lambda row: row[2])
            most = stream.settings["idempotent_max_ids"]
            # The oldest go; what the new one takes the place of is no longer counted.
            kept = mine[max(0, len(mine) + 1 - most) :]
            others = [row for row in stream.remembered if row[0] != producer]
            stream.remembered = [*others, *kept]
        stream.remembered = [row for row in stream.remembered if row[2][0] > expired]
        if not fresh:
            assert known is not None
            stream.iids_duplicates += 1
            self.counts["duplicate_adds"] += 1
            return known
        id = self.add(name, pairs)
        stream.remembered.append((producer, iid, id))
        stream.iids_added += 1
        return id

    def configure(self, name: bytes, **changes: Any) -> None:
        """Change settings; other limits of what is remembered forget all of it."""
        stream = self.existing(name)
        if any(changes.get(each, stream.settings[each]) != stream.settings[each]
               for each in REMEMBERS):  # fmt: skip
            stream.remembered = []
        stream.settings |= changes
