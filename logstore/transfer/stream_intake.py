"""Taking streams into a store: small ones many a commit, large ones in pieces.

Invariants: a stream appears whole, in one commit. What was not committed is made anew by the next
import; what was committed is recognised. A stream of more than ``PIECE_BYTES`` of nodes comes in
commits of about that size, under another name (``engine.dump.restore``). Memory holds a few pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from logstore.api import arguments
from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import restore
from logstore.engine.dump.restore import VerifiedNodes, VerifiedPart, VerifiedStream
from logstore.engine.features import expiry
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import (
    CorruptNodeError,
    Error,
    InvalidPayloadError,
    StreamExistsError,
    TooLargeError,
)
from logstore.index.keys import StreamRecord
from logstore.rdb.value import StreamInfoValue, StreamValue
from logstore.transfer.job import Job, StreamIdentity
from logstore.tuples import NamedTuple

PIECE_BYTES = 1 << 20  # small, so that the same memory is reused
STREAMS_A_COMMIT = 1000


# Errors about one stream, after which the next ones can be imported.
CANNOT_TAKE = (InvalidPayloadError, CorruptNodeError, TooLargeError)


class Piece(NamedTuple):
    """Nodes that were verified, and the edge behind them."""

    parts: list[VerifiedPart]
    after: VerifiedNodes


class Intake:
    """Takes streams into a store; call ``flush`` at the end."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting: list[tuple[bytes, VerifiedStream, int | None]] = []
        self._waiting_bytes = 0

    def record(self, name: bytes) -> StreamRecord | None:
        """The record of a stream in the store; None: there is none."""
        return snapshot.read(opened_of(self._job.store).engine(), Snapshot.record, name)

    def takes(self, name: bytes, identity: StreamIdentity) -> bool:
        """Whether a stream is to be brought in; if not it is counted. StreamExistsError."""
        arguments.stream_name(name)
        if self._job.wanted.replace:
            return True
        found = self.record(name)
        if found is None:
            return True
        if self._job.keeps(StreamIdentity.of(found), identity):
            return False
        raise StreamExistsError(
            f"the store has another stream of this name, {found.length} entries up to "
            f"{found.last}, not {identity.length} up to {identity.last}: skip it, replace it, or "
            "give a prefix",
            stream=name,
        )

    def now_ms(self) -> int:
        """The time of the store's clock, unix ms."""
        return opened_of(self._job.store).engine().clock.now_ms()

    # -- whole streams --------------------------------------------------------------------------
    def value(self, name: bytes, value: StreamValue, expires_ms: int | None = None) -> None:
        """Bring in a stream that is in memory, in the next commit."""
        self.whole(name, restore.prepare(value), expires_ms)

    def whole(self, name: bytes, prepared: VerifiedStream, expires_ms: int | None = None) -> None:
        """Bring in a stream that was verified, in the next commit."""
        if prepared.info.many:
            self._large(name, prepared, expires_ms)
            return
        size = sum(map(restore.part_bytes, prepared.parts))
        if self._waiting and self._waiting_bytes + size > PIECE_BYTES:
            self.flush()
        self._waiting.append((name, prepared, expires_ms))
        self._waiting_bytes += size
        if self._waiting_bytes >= PIECE_BYTES or len(self._waiting) >= STREAMS_A_COMMIT:
            self.flush()

    def _large(self, name: bytes, prepared: VerifiedStream, expires_ms: int | None) -> None:
        """Bring in a stream with very many groups, in commits of its own."""
        self.flush()
        restore.bring(
            self._commit,
            name,
            prepared,
            replace=self._job.wanted.replace,
            last=partial(_expire, name=name, expires_ms=expires_ms),
        )
        self._job.report.streams += 1
        self._job.report.entries += prepared.info.length

    def _commit(self, op: Callable[[WriteTxn], Any]) -> Any:
        return opened_of(self._job.store).commit(op, None)

    def flush(self) -> None:
        """Commit the streams that wait."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        replace = self._job.wanted.replace

        def step(state: WriteTxn) -> None:
            for name, prepared, expires_ms in waiting:
                restore.install(state, name, prepared, replace=replace)
                _expire(state, name, expires_ms)

        self._commit(step)
        self._job.report.streams += len(waiting)
        self._job.report.entries += sum(prepared.info.length for _, prepared, _ in waiting)

    # -- streams in pieces ----------------------------------------------------------------------
    @contextmanager
    def piecewise(self, name: bytes) -> Iterator[restore.UnfinishedStream]:
        """Around a stream that comes in pieces; if the block fails its pieces are removed."""
        self.flush()
        temporary: restore.UnfinishedStream = self._commit(lambda state: restore.begin(state, name))
        try:
            yield temporary
        except BaseException:
            with suppress(Error):  # if the store failed, the next import removes them
                self._commit(lambda state: restore.discard(state, temporary))
            raise

    def extend(
        self, temporary: restore.UnfinishedStream, edge: VerifiedNodes, piece: Piece
    ) -> VerifiedNodes:
        """Add the nodes behind ``edge``, in one commit; the edge behind them."""
        parts, after = piece
        step = partial(restore.extend, temporary=temporary, before=edge, parts=parts, after=after)
        self._commit(step)
        return after

    def finish(
        self,
        temporary: restore.UnfinishedStream,
        edge: VerifiedNodes,
        name: bytes,
        info: StreamInfoValue,
        expires_ms: int | None = None,
    ) -> None:
        """End a stream that came in pieces: it appears under its name."""
        restore.check_info(info, edge)
        restore.check_size(info, 0)
        restore.complete(
            self._commit,
            temporary,
            edge,
            name,
            info,
            replace=self._job.wanted.replace,
            last=partial(_expire, name=name, expires_ms=expires_ms),
        )
        self._job.report.streams += 1
        self._job.report.entries += info.length


def _expire(state: WriteTxn, name: bytes, expires_ms: int | None) -> None:
    if expires_ms is not None:
        record = state.record_by_name(name)
        assert record is not None
        expiry.expire_at(state, record, expires_ms)
