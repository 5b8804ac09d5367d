"""Which entry is the newest of its key, of entries that no row of the index speaks of yet.

Streams that are kept compact are gone through behind the adds. What was not gone through yet is
remembered here, so that a second look for a key need not read it all again. The memory of a stream
covers one interval of IDs: it grows at the upper end by what was added since, at the lower end by
what a look had to read.

Invariants: of each key it has the newest entry of its interval that lived when it was read, or
``NONE`` once none did; nothing is put in but what a snapshot gave that was found sound. Entries of
the interval never change and none is added to it, as long as the epoch is the same
(``LatestRows.epoch``: it is another one as soon as IDs may be given again, or the key is another
field). Entries may be deleted: whoever looks reads the entry, and puts in what is there instead.
What is lost of it is read again, so it may be dropped at any time; it is bounded. One thread at a
time looks at it, in a snapshot that begins behind the one before.
"""

from __future__ import annotations

import threading

from logstore.ids import ZERO_ID, StreamID

KEYS_MAX = 1 << 18  # of all streams together; about 250 bytes each
NONE = ZERO_ID  # no entry of the key is left in the interval


class NewestEntries:
    """The memory of one stream: digests of keys, and the newest entry of each above ``floor``, up
    to ``upto``."""

    __slots__ = ("epoch", "floor", "keys", "upto")

    def __init__(self, epoch: int, floor: StreamID, upto: StreamID) -> None:
        self.epoch = epoch
        self.floor = floor
        self.upto = upto
        self.keys: dict[bytes, StreamID] = {}


class NewestOfStreams:
    """The memories of one engine, by numbers of streams."""

    __slots__ = ("_streams", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held over a look
        self._streams: dict[int, NewestEntries] = {}

    def of(self, stream: int) -> NewestEntries | None:
        """The memory of a stream, if there is one."""
        return self._streams.get(stream)

    def keep(self, stream: int, memory: NewestEntries) -> None:
        """Remember this of a stream; whatever is too much goes, first what is of other streams."""
        self._streams.pop(stream, None)
        self._streams[stream] = memory  # at the end: those before were looked at longer ago
        held = sum(len(each.keys) for each in self._streams.values())
        while held > KEYS_MAX:
            oldest = next(iter(self._streams))
            held -= len(self._streams.pop(oldest).keys)
