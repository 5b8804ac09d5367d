"""A collection at every object that is made, and work of ours inside a chosen one.

The collector of CPython 3.11 runs where a container is allocated, so also inside compiled code;
from 3.12 on it waits for the next step of interpreted code. Only young objects are looked at: all
that was there before is frozen.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

KEPT_MAX = 100_000


class Finaliser:
    """Garbage in a cycle, whose end is work of ours."""

    def __init__(self, work: Callable[[], object], errors: list[BaseException]) -> None:
        self._work, self._errors, self._itself = work, errors, self

    def __del__(self) -> None:
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001  raised where the block ends
            self._errors.append(exc)


class Collector:
    """Collects wherever it can, in a ``with`` block; ``work`` runs in one collection, if asked for.

    What the work raises is raised at the end of the block: a callback of the collector cannot.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._left = 0
        self._owner = threading.get_ident()
        self._kept: list[list[object]] = []
        self.count = self.done = 0
        self.errors: list[BaseException] = []

    def after(self, collections: int) -> None:
        """Run the work in so many collections of this thread; 0: in none."""
        self._left = collections

    @property
    def waits(self) -> bool:
        """Whether the work did not run yet."""
        return self._left > 0

    def _called(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "stop":
            # One object is alive already, and the threshold is one: the next one is too many.
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept.append([])
            return
        self.count += 1
        if self._left and threading.get_ident() == self._owner:
            self._left -= 1
            if not self._left:
                self.done += 1
                Finaliser(self._work, self.errors)  # of this collection

    def __enter__(self) -> Self:
        gc.collect()
        gc.freeze()
        self._threshold = gc.get_threshold()
        gc.callbacks.append(self._called)
        gc.set_threshold(1, 1 << 30, 1 << 30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        gc.set_threshold(*self._threshold)
        gc.callbacks.remove(self._called)
        gc.unfreeze()
        self._kept.clear()
        if kind is None and self.errors:
            raise self.errors[0]
