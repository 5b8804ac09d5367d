"""The compiled module of the lane, where it was built.

Invariants: chosen once, when this is imported; who asks for the pure codec (LOGSTORE_CODEC) gets
nothing that is compiled from Cython. It may not know what the module does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from logstore.codec import codec_name

if TYPE_CHECKING:
    from types import ModuleType


def _load() -> ModuleType | None:
    if codec_name() != "native":
        return None
    try:
        return importlib.import_module("logstore.engine.lane.native")
    except ImportError:
        return None


native_or_none = _load()
