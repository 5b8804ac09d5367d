"""Loading a module of ours where it is first needed."""

from __future__ import annotations

import gc
import importlib
from typing import Any


def load(module: str) -> Any:
    """A module, by its whole name.

    No garbage is looked for meanwhile: loading makes much that stays, and the collector would look
    through all of it a dozen times. A collector that is off stays off.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collects:
            gc.enable()
