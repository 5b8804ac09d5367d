"""The class of runs of pending entries, of the codec in use.

Apart from ``codec.run``, the pure one, so that a compiled module can name the class as a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.codec.choose import codec

if TYPE_CHECKING:
    from logstore.codec.run import PendingRun
else:
    PendingRun = codec().PendingRun

__all__ = ["PendingRun"]
