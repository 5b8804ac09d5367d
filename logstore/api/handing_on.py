"""Steps that give back or hand on what is pending, or read it again: beside the pipeline if plain.

Invariants: a step that is not plain, or meets a moment that is not, goes through the pipeline with
the same result; whether it is, the lane says, before anything happened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.api.opening import OpenStore, beside
from logstore.engine.streams import read
from logstore.errors import DiskFullError
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.ids import StreamID


def hand_on(
    opened: OpenStore[Any],
    step: partial[Any],
    sync: Sync | None = None,
    *,
    frees: bool = False,
    on_dead: Callable[[Any], object] | None = None,
) -> Any:
    """What ``OpenStore.commit_telling`` does, of a step whose function the lane has by its name."""
    shared = opened.live()
    if sync is None and shared.lane is not None:
        commit = getattr(shared.lane, step.func.__name__)
        missed: list[StreamID] = []
        try:
            given = beside(commit, missed=missed, **step.keywords)
            if missed:
                read.keep_places(shared.engine, step.keywords["stream"], missed)
                given = beside(commit, missed=[], **step.keywords)
        except DiskFullError:  # nothing happened: the pipeline may have space set aside for it
            given = None
        if given is not None:
            return given
    return opened.commit_telling(step, sync, frees=frees, on_dead=on_dead)
