"""Classes of the codec in use, compiled or pure, by name: the one of runs of pending entries.

Invariants: apart from ``codec.pending_run``, which has the pure class, so that a compiled module
can name the class as a type. It may not know what the classes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.codec.backend import codec

if TYPE_CHECKING:
    from logstore.codec.pending_run import PendingRun
else:
    PendingRun = codec().PendingRun

__all__ = ["PendingRun"]
