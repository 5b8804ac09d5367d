"""What of a stream goes by its limits in the model: by whole nodes, as the log has them."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.groups import ID, ZERO
from tests.model.streams import Stream, Streams


class Lies(NamedTuple):
    """A node, as the log has it."""

    last: ID
    live: int
    size_bytes: int
    sealed: bool


class Retention(Streams):
    """Approximate trimming, and the limits of age, number and size."""

    def trim_nodes(
        self, name: bytes, max_entries: int | None, min_id: ID | None, limit: int, nodes: list[Lies]
    ) -> int:
        """Whole nodes; how many entries."""
        stream = self.seen(name)
        if stream is None:
            return 0
        going = 0
        left = len(stream.entries)
        for node in nodes:
            if max_entries is not None and left <= max_entries:
                break
            if limit and going + node.live > limit:
                break
            goes = (
                left - node.live >= max_entries
                if max_entries is not None
                else node.last < (min_id or ZERO)
            )
            if not goes:
                break
            going += node.live
            left -= node.live
        return self._trimmed(stream, list(stream.entries)[:going], "trimmed_entries")

    def newest(self, name: bytes, field: bytes, key: bytes) -> ID | None:
        """The newest entry of a key; of a field that repeats the last one counts."""
        entries = reversed(self.streams[name].entries.items())
        return next((id for id, pairs in entries if dict(pairs).get(field) == key), None)

    def retain(self, lies: dict[bytes, list[Lies]]) -> int:
        """Drop what no stream keeps; how many entries."""
        return sum(self._retain(stream, lies[name]) for name, stream in self.streams.items())

    def _retain(self, stream: Stream, nodes: list[Lies]) -> int:
        age, most, size = (stream.settings[each] for each in ("max_age_ms", "max_entries",
                                                                "max_bytes"))  # fmt: skip
        held = sum(node.size_bytes for node in nodes)
        length, going = len(stream.entries), 0
        oldest = ZERO if age is None else (max(0, self.now - age), 0)
        if not (
            (most is not None and length > most)
            or (size is not None and held > size)
            or stream.first < oldest
        ):
            return 0
        for place, node in enumerate(nodes, 1):
            goes = node.last < oldest
            if most is not None:
                goes = goes or length > most <= length - node.live
            if size is not None:
                goes = goes or (held > size and place < len(nodes))
            if not goes:
                break
            length -= node.live
            going += node.live
            held -= node.size_bytes if node.sealed else 0
            self.counts["retained_bytes"] += node.size_bytes if node.sealed else 0
        return self._trimmed(stream, list(stream.entries)[:going], "retained_entries")
