"""Loading a module of ours where it is first needed, and what to type for one that is missing."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


def load(module: str) -> Any:
    """A module, by its whole name.

    No garbage is looked for meanwhile: loading makes much that stays, and the collector would look
    through all of it a dozen times. What was made counts as old then, without a look at it. A
    collector that is off stays off, and what somebody froze stays frozen.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collects:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def installing(extra: str) -> str:
    """What to type for the packages of an extra."""
    here = f"pip install '.[{extra}]'"
    return f"pip install 'logstore-streams[{extra}]' (in a clone of logstore: {here})"


def built_of_others(module: Any, what: str) -> Exception:
    """The error of a compiled module that is not of the sources that are here; ``what`` differs."""
    from logstore.errors import UsageError

    return UsageError(
        f"{module.__file__} was compiled from other sources than those that are here ({what} "
        "is not the same): build it again, as 'pip install .' does, or run without it: "
        "LOGSTORE_CODEC=pure"
    )


def needing(extra: str, call: Callable[[], R]) -> R:
    """What a call gives; UsageError says which extra has the package that is not there."""
    from logstore.errors import UsageError

    try:
        return call()
    except ModuleNotFoundError as error:
        how = "pip install pandas" if extra == "pandas" else installing(extra)
        raise UsageError(f"{error.name} is not installed: {how}") from error
