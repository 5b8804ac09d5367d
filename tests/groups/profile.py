"""In what the peers differ from the store and from each other: one table, each line with a reason.

The store follows Redis 8.2. The machine asks the profile of its peer what it may draw and what it
may find.
"""

from __future__ import annotations

from dataclasses import dataclass

from logstore.ids import ZERO_ID, StreamID


@dataclass(frozen=True)
class Profile:
    """One version of a peer."""

    name: str
    # XDELEX, XACKDEL and KEEPREF|DELREF|ACKED of XADD and XTRIM: Redis 8.2; Valkey 9.1 has none.
    references: bool
    # ENTRIESREAD above entries-added is lowered to it: Redis 8; Valkey 9.1 keeps it, and its lag
    # becomes negative. It also counts on from a number that cannot be true for an ID before the
    # first entry, where Redis 8 reckons anew: there it is given with "$" only.
    clamps_entries_read: bool
    # Once entries went, Valkey 9.1 reckons entries-read and lag as Redis 7.2 does: it counts on for
    # a group that is behind the first entry, it looks for tombstones from the delivered entry on
    # (Redis 8: from the group's last ID on), an empty stream need not have a lag of 0, and a group
    # behind all that was deleted not one of the whole length.
    reckons_with_deletes: bool
    # A history after the last possible ID begins anew at 0-0, by an overflow, in Redis 8.2 as in
    # Valkey 9.1; ours is empty.
    history_begins_anew: bool = True

    def entries_read(self, drawn: int | None, place: int | None, entries_added: int) -> int | None:
        """What may be given as ENTRIESREAD; ``place`` None is "$"."""
        if drawn is None or self.clamps_entries_read:
            return drawn
        return min(drawn, entries_added) if place is None else None

    def may_differ(self, length: int, entries_added: int, max_deleted: StreamID) -> bool:
        """Whether entries-read and lag of a stream's groups may be others on the peer."""
        whole = length == entries_added and max_deleted == ZERO_ID
        return not self.reckons_with_deletes and not whole


REDIS = Profile("redis", references=True, clamps_entries_read=True, reckons_with_deletes=True)
VALKEY = Profile("valkey", references=False, clamps_entries_read=False, reckons_with_deletes=False)
