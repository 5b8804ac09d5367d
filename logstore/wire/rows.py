"""Adds to one stream that came together, as one operation, or one by one where that is refused.

Invariants: each is added, or refused, as if it had come alone, in the order in which they came;
what was refused leaves no trace. Called inside a commit.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine import adds
from logstore.engine.state import State
from logstore.errors import Error
from logstore.wire.failures import failure_of
from logstore.wire.reply import Encoded, Failure, encode
from logstore.wire.steps import AddRows


class Again(Exception):  # noqa: N818
    """A step failed after it had begun: the others are decided once more without it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def refused(step: AddRows, failure: Failure) -> Encoded:
    """The replies if all of them are refused."""
    return Encoded(encode(failure, 2) * len(step.rows))


class Adding:
    """One such step, until its commit is through."""

    def __init__(self, step: AddRows) -> None:
        self._step = step
        self._apart = False
        self._refused: dict[int, bytes] = {}

    def __call__(self, state: State) -> Encoded:
        """Add them all; the replies. ``Again``: call it in another state."""
        rows = self._step.rows
        if not self._apart:
            try:
                return Encoded(self._add(state, 0, len(rows)))
            except Again:
                self._apart = True
                raise
            except Error:
                self._apart = True
        return Encoded(b"".join([self._one(state, at) for at in range(len(rows))]))

    def _one(self, state: State, at: int) -> bytes:
        found = self._refused.get(at)
        if found is not None:
            return found
        try:
            return self._add(state, at, at + 1)
        except Error as exc:
            self._refused[at] = found = encode(failure_of(exc), 2)
            return found
        except Again as again:
            self._refused[at] = encode(failure_of(again.cause), 2)
            raise

    def _add(self, state: State, first: int, end: int) -> bytes:
        buffer = state.buffer
        assert buffer is not None
        mark = buffer.mark()
        request = adds.Add(self._step.key, self._step.rows, first, end, adds.AUTO)
        try:
            added = adds.add(state, request)
        except Error as exc:
            if buffer.mark() != mark:
                raise Again(exc) from exc
            raise
        assert added is not None
        return codec().resp_ids(*added.first, end - first)
