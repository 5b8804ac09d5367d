"""A read that blocks, as far as the server and the embedded client have it in common.

Invariants: its time counts from when it was begun; ``attempt`` looks, commits and reckons, so call
it in a thread; nothing is held between two tries. Knows not how to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logstore.wire.failures import UNBLOCKED
from logstore.wire.reply import Failure, Reply
from logstore.wire.runner import StoreReader
from logstore.wire.session import Session
from logstore.wire.steps import Block


class Unblocked(Exception):  # noqa: N818
    """CLIENT UNBLOCK ended the wait, or the client went; with the reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Blocked:
    """One such read, until it is answered."""

    def __init__(self, session: Session, step: Block) -> None:
        self.step = step
        timeout_ms = step.timeout_ms
        self.deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self.pause_s: float | None = None  # since the last try: when to look again at the latest
        self._runner = session.database.runner
        self._owed = session.owed
        self._reader = StoreReader(session.database.store, session.owed)
        self._session = session
        self._told: list[bool] = []
        self._waited = False
        self.tried = False  # or it came behind others, so that it is not its turn

    def attempt(self) -> list[Reply] | None:
        """Try once: the reply, as a list; None if there is nothing."""
        step = self.step
        self._owed.back(0)
        if step.worth is None or step.worth(self._reader):
            refused = step.refusal() if self._waited and step.refusal is not None else None
            if refused is not None:
                return [refused]
            found = self._runner.run([step.attempt], self._owed)
            if found[0] is not step.empty:
                return found
        self.tried = self._waited = True
        pause_ms = None if step.pause_ms is None else step.pause_ms(self._reader)
        self.pause_s = None if pause_ms is None else pause_ms / 1000
        return None

    def begin(self, wake: Callable[[], object]) -> None:
        """From now on CLIENT UNBLOCK may end it; it calls ``wake`` then."""

        def unblock(with_error: bool) -> None:
            self._told.append(with_error)
            wake()

        self._session.unblock = unblock

    def end(self) -> None:
        """It does not wait any more."""
        self._session.unblock = None

    def check(self) -> None:
        """``Unblocked`` once it was; who went before it began has one try, as with the peers."""
        if self._told or (self.tried and self._session.gone):
            raise Unblocked(Failure(UNBLOCKED) if any(self._told[:1]) else self.step.empty)
