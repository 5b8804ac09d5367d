"""Waiting for entries of a group: the loop around one read.

Invariants: a consumer that waits is marked as seen once, when it begins; after that waiting writes
nothing to the log, since each try looks at a snapshot first; what becomes idle makes no commit, so
a read that also claims looks again every ``CLAIM_SLICE_S``; no lock is held in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore import describe
from logstore.engine import groups, snapshot, tickets
from logstore.engine.deliveries import Delivered
from logstore.engine.snapshot import Snapshot
from logstore.engine.state import State

if TYPE_CHECKING:
    from logstore.store import Store

CLAIM_SLICE_S = 0.25


class Wait(NamedTuple):
    """A read of a group that waits."""

    store: Store[Any]
    stream: bytes
    group: bytes
    consumer: bytes
    once: Callable[[], list[Delivered]]  # the read itself, one commit
    claim_idle_ms: int | None
    alive: Callable[[], object] | None  # raises when waiting is over

    def until(self, deadline: float | None) -> list[Delivered]:
        """What the read gives; [] at the deadline (of ``time.monotonic``; None: none)."""
        if _over(deadline):
            return self.once()
        shown = False
        while not _over(deadline):
            key = self._view(lambda view: describe.group_number(view, self.stream, self.group))
            if key is None:
                return self.once()  # it says what is missing
            if not shown and not self._view(self._deliverable):
                self.store._commit(self._show, None)
                shown = True
            found = self._serve(key, self._slice(deadline))
            if found:
                return found
        return [] if self.claim_idle_ms is None else self._try()  # idle since the last slice?

    def _serve(self, key: int, deadline: float | None) -> list[Delivered] | None:
        shared = self.store._live()
        return tickets.serve(
            shared.engine, shared.committer, self.stream, key, self._try, deadline,
            owner=(threading.get_ident(), self.consumer), alive=self.alive or self.store._engine,
        )  # fmt: skip

    def _try(self) -> list[Delivered]:
        return self.once() if self._view(self._deliverable) else []

    def _deliverable(self, view: Snapshot) -> bool:
        now_ms = self.store._engine().clock.now_ms()
        until_ms = None if self.claim_idle_ms is None else now_ms - self.claim_idle_ms
        return describe.deliverable(view, self.stream, self.group, until_ms)

    def _show(self, state: State) -> None:
        _, group = groups.existing(state, self.stream, self.group)
        groups.seen(state, group, groups.consumer(state, group, self.consumer))

    def _slice(self, deadline: float | None) -> float | None:
        if self.claim_idle_ms is None:
            return deadline
        end = time.monotonic() + CLAIM_SLICE_S
        return end if deadline is None else min(end, deadline)

    def _view(self, look: Callable[[Snapshot], Any]) -> Any:
        return snapshot.read(self.store._engine(), look)


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
