"""What is public, still works, and will go: each is warned of where it is used.

The register says since when, by what it is replaced, and with which version it goes. A rename or
removal begins with a line in it; what has the old name calls ``warn`` and does what it did. A name
of ``logstore`` itself that has another one now needs the line alone.

Invariants: a name goes with a major version only, and not before two minor versions told of it
(docs/compatibility.md); the warning names the line of the caller, however many of our frames stand
between, so that Python shows it once for each such line.
"""

from __future__ import annotations

import sys
import warnings

from logstore.tuples import NamedTuple


class Deprecation(NamedTuple):
    """What is told of a name."""

    since: str  # the version that told of it first, "1.2"
    removed_in: str  # the major version with which it goes, "2.0"
    instead: str  # what to use


# By the name that users have: "Stream.ttl", "Stream.add(maxlen=)", "logstore add --maxlen".
DEPRECATED: dict[str, Deprecation] = {}


def warn(name: str) -> None:
    """Tell the caller of something in the register that it goes: a DeprecationWarning."""
    found = DEPRECATED[name]
    warnings.warn(
        f"{name} is deprecated since logstore {found.since}, and goes with {found.removed_in}: "
        f"use {found.instead}",
        DeprecationWarning,
        stacklevel=_level_of_caller(),
    )


def renamed(name: str) -> str:
    """The name today of a name of ``logstore`` itself that had another one, with a warning; empty
    if there was none."""
    found = DEPRECATED.get(f"logstore.{name}")
    if found is None:
        return ""
    warn(f"logstore.{name}")
    return found.instead.removeprefix("logstore.")


def _level_of_caller() -> int:
    """What ``warnings.warn`` takes for the first frame that is not ours."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001  (inspect is ten times as much to load)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(module: str) -> bool:
    return module == "logstore" or module.startswith("logstore.")
