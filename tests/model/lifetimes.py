"""What comes and goes by itself in the model: streams that expire, entries that are scheduled."""

from __future__ import annotations

from tests.model.groups import Pairs
from tests.model.streams import Streams, Waits


class Lifetimes(Streams):
    """Times of streams, and entries that wait for theirs."""

    def expire(self, name: bytes, at: int) -> bool:
        """Whether it was set; a time that has come drops it."""
        stream = self.seen(name)
        if stream is None:
            return False
        stream.expires_ms = at
        if at <= self.now:
            del self.streams[name]
        return True

    def persist(self, name: bytes) -> bool:
        """Whether it had a time, which it has no more."""
        stream = self.seen(name)
        had = stream is not None and stream.expires_ms > 0
        if stream is not None:
            stream.expires_ms = 0
        return had

    def schedule(self, name: bytes, pairs: Pairs, due: int, number: int) -> None:
        """Keep an entry until its time."""
        self.existing(name).scheduled.append(Waits(due, number, pairs))

    def repeat(self, name: bytes, pairs: Pairs, every_ms: int, called: str) -> None:
        """Keep an entry that comes again and again, in the place of the one of this name.

        The same length keeps the time of the next one.
        """
        stream = self.existing(name)
        due = first = self.now + every_ms
        for before in [each for each in stream.scheduled if each.name == called]:
            stream.scheduled.remove(before)
            if before.every_ms == every_ms:
                due, first = before.due, before.first_ms
        stream.scheduled.append(Waits(due, 0, pairs, called, every_ms, first))

    def wake(self) -> None:
        """What whoever is awake does."""
        for name in [name for name in self.streams if self.seen(name) is None]:
            del self.streams[name]
            self.counts["expired_streams"] += 1
        for name, stream in self.streams.items():
            due = sorted(each for each in stream.scheduled if each.due <= self.now)
            for each in due:
                stream.scheduled.remove(each)
                self.add(name, each.pairs)
                if each.every_ms:  # what was missed is one; the next one is in step with the first
                    missed = (self.now - each.first_ms) // each.every_ms
                    following_ms = each.first_ms + (missed + 1) * each.every_ms
                    stream.scheduled.append(each._replace(due=following_ms))
            self.counts["scheduled_added"] += len(due)
