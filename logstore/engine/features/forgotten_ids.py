"""Giving back, in the background, idempotent IDs that are over their time.

What an idempotent add decides is in ``engine.streams.idempotency``, how they travel with a stream
in ``engine.dump.idempotent_ids``.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import islice

from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import idempotency
from logstore.features.idempotent_ids import ProducerRows
from logstore.features.setting_rows import SettingRows

LOOK_S = 10.0  # and this much sooner while there are more streams to look at, or to do:
SOON_S = 1.0
STREAMS_A_LOOK = 500
COMMITS_A_LOOK = 50


class IdempotentExpiry:
    """Gives back, for one process, what is remembered for longer than its stream's setting says.

    The next idempotent add to a stream does it too; this is for streams to which nobody adds so
    again. Nothing here is needed for correctness: what is over its time is not known, whether it is
    still there or not. Snapshots are looked at first, and no lock is taken while nothing is due; a
    bounded part is given back in one go, then others have their turn. Several processes may be at
    it, one after another, and the second finds it done. On a full disk it works in the space that
    is set aside, as all does that gives space back.
    """

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._after = 0  # the stream where the last look ended
        self._next_s = 0.0

    def tick(self) -> None:
        """Look if it is time to, and forget what is due."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LOOK_S  # whatever fails below is not tried at once
            if self.look() or self._after:
                self._next_s = now_s + SOON_S

    def look(self) -> bool:
        """Look at the next streams, and forget what is due there; False if there was nothing."""
        streams, self._after = snapshot.read(self._engine, partial(self._due, after=self._after))
        for stream in streams[:COMMITS_A_LOOK]:
            self._committer.free(partial(idempotency.forget_expired, stream=stream))
        if len(streams) > COMMITS_A_LOOK:
            self._after = streams[COMMITS_A_LOOK] - 1
        return bool(streams)

    def _due(self, view: Snapshot, after: int) -> tuple[list[int], int]:
        """Streams with something to forget, and where to go on: 0 after the last one."""
        index, now_ms = view.index, self._engine.options.clock.now_ms()
        seen = list(islice(ProducerRows(index).tallies(after), STREAMS_A_LOOK))
        due = [
            stream
            for stream, tally in seen
            if tally.ids
            and idempotency.has_expired(
                ProducerRows(index), stream, SettingRows(index).stream(stream), now_ms
            )
        ]
        return due, seen[-1][0] if len(seen) == STREAMS_A_LOOK else 0
