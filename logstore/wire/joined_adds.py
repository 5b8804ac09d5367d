"""Adds to one stream that came together, as one operation, or one by one where that is refused.

Invariants: each is added, or refused, as if it had come alone, in the order in which they came;
what was refused leaves no trace. Called inside a commit.
"""

from __future__ import annotations

from typing import TypeAlias

from logstore.codec import RowBatch, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import add
from logstore.errors import Error
from logstore.ids import StreamID
from logstore.wire.failures import failure_of
from logstore.wire.reply import Encoded, Failure, Reply, encode
from logstore.wire.steps import AddRows

Run: TypeAlias = tuple[StreamID, int] | Failure  # the first ID and how many; or one refused


class Again(Exception):  # noqa: N818
    """A step failed after it had begun: the others are decided once more without it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def refused(step: AddRows, failure: Failure) -> Encoded:
    """The replies if all of them are refused."""
    return Encoded(encode(failure, 2) * len(step.rows))


def encoded(runs: list[Run]) -> Encoded:
    """The replies of all rows as bytes."""
    ids = codec().resp_ids
    return Encoded(
        b"".join(
            [encode(run, 2) if isinstance(run, Failure) else ids(*run[0], run[1]) for run in runs]
        )
    )


def each_reply(runs: list[Run]) -> list[Reply]:
    """A reply for each row."""
    found: list[Reply] = []
    for run in runs:
        if isinstance(run, Failure):
            found.append(run)
            continue
        id, count = run
        found.append(bytes(id))
        for _ in range(count - 1):
            id = id.next()
            found.append(bytes(id))
    return found


class Adding:
    """Rows of one stream, or some of them, until their commit is through."""

    def __init__(
        self, key: bytes, rows: RowBatch, first: int = 0, end: int | None = None
    ) -> None:  # fmt: skip
        self._key = key
        self._rows = rows
        self._first = first
        self._end = len(rows) if end is None else end
        self._apart = False
        self._refused: dict[int, Failure] = {}

    def __call__(self, state: WriteTxn) -> list[Run]:
        """Add them all; what became of them, in order. ``Again``: call it in another state."""
        if not self._apart:
            try:
                return [self._add(state, self._first, self._end)]
            except Again:
                self._apart = True
                raise
            except Error:
                self._apart = True
        return [self._one(state, at) for at in range(self._first, self._end)]

    def _one(self, state: WriteTxn, at: int) -> Run:
        found = self._refused.get(at)
        if found is not None:
            return found
        try:
            return self._add(state, at, at + 1)
        except Error as exc:
            self._refused[at] = found = failure_of(exc)
            return found
        except Again as again:
            self._refused[at] = failure_of(again.cause)
            raise

    def _add(self, state: WriteTxn, first: int, end: int) -> Run:
        buffer = state.buffer
        assert buffer is not None
        mark = buffer.mark()
        request = add.Add(self._key, self._rows, first, end, add.AUTO)
        try:
            added = add.add(state, request)
        except Error as exc:
            if buffer.mark() != mark:
                raise Again(exc) from exc
            raise
        assert added is not None
        return added.first, end - first
