"""What users can call: ``python -m tests.house.public_face`` writes it to public_members.txt.

A line for each attribute and method of the public classes, with its parameters and what they are by
default. Types are not among them: a wider one breaks nobody. What raises, and text, is elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import logstore
from logstore import aio, jobs
from tests.support.parameters import parameters

PINNED = Path(__file__).with_name("public_members.txt")
HEAD = """\
# What users can call and look at, a line each, sorted; made by `python -m tests.house.public_face`.
# A change here is a change of the API: what goes or gets another name is deprecated first
# (docs/compatibility.md), what comes is at the end of its kind, or has a default.
"""
# What their classes have of Python, and errors for the protocol's replies.
INHERITED = {BaseException, Exception, Enum, object, tuple, str, int, dict, logstore.Error}


def classes() -> dict[str, type]:
    """The public classes, by the names that users have for them."""
    found = {name: getattr(logstore, name) for name in logstore.__all__ if name != "__version__"}
    found |= {f"aio.{name}": getattr(aio, name) for name in aio.__all__}
    found |= {f"jobs.{name}": getattr(jobs, name) for name in jobs.__all__}
    return {name: each for name, each in found.items() if inspect.isclass(each)}


def shown(function: Any) -> str:
    """The parameters of a call: names, what they are by default, `*` and `/`."""
    told = [
        each.replace(annotation=inspect.Parameter.empty) for each in parameters(function).values()
    ]
    named = sorted(
        (each for each in told if each.kind is each.KEYWORD_ONLY), key=lambda one: one.name
    )
    rest = [each for each in told if each.kind not in {each.KEYWORD_ONLY, each.VAR_KEYWORD}]
    more = [each for each in told if each.kind is each.VAR_KEYWORD]
    return str(inspect.Signature([*rest, *named, *more]))


def members(name: str, kind: type) -> Iterator[str]:
    """A line each."""
    for attribute in dir(kind):
        if attribute.startswith("_"):
            continue
        if any(attribute in vars(base) for base in kind.__mro__ if base in INHERITED):
            continue
        found = inspect.getattr_static(kind, attribute)
        called = (
            getattr(kind, attribute) if isinstance(found, classmethod | staticmethod) else found
        )
        if inspect.isfunction(called) or inspect.ismethod(called):
            yield f"{name}.{attribute}{shown(called)}"
        else:
            yield f"{name}.{attribute}"


def lines() -> list[str]:
    """All of it, sorted."""
    found = [line for name, kind in classes().items() for line in members(name, kind)]
    return sorted([*found, f"open{shown(logstore.open)}"])


if __name__ == "__main__":
    PINNED.write_text(HEAD + "\n".join(lines()) + "\n", encoding="utf-8")
