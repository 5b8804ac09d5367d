"""A mutant in a process that has imported the module already: the code of its functions is changed.

Invariants: only code inside of functions and methods can be changed so, not what ran when the
module was imported; whoever imported a function has the same object, and so the mutant. Meant for
a fork: nothing is put back.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType


def inside(code: CodeType) -> Iterator[CodeType]:
    """The code objects in another one, outer ones first, in the order of the text."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inside(constant)


def is_function(code: CodeType) -> bool:
    """Whether the code is not that of a class or a module."""
    return bool(code.co_flags & CO_NEWLOCALS)


def differing(path: Path, before: str, after: str) -> dict[CodeType, CodeType] | None:
    """What becomes of the functions' code; None if other code differs as well, or nothing."""
    old, new = (compile(source, str(path), "exec", dont_inherit=True) for source in (before, after))
    olds, news = list(inside(old)), list(inside(new))
    if len(olds) != len(news):
        return None
    functions: dict[CodeType, CodeType] = {}
    for one, other in zip(olds, news, strict=True):
        if one == other or not is_function(one):
            continue
        if one.co_freevars != other.co_freevars:
            return None
        functions[one] = other
    return functions if functions and _same_outside(old, new) else None


def _same_outside(old: CodeType, new: CodeType) -> bool:
    """Whether the module's and classes' own instructions and constants are the same."""
    if old.co_code != new.co_code or old.co_names != new.co_names:
        return False
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(one, CodeType):
            if one != other or type(one) is not type(other):
                return False
        elif not is_function(one) and not _same_outside(one, other):
            return False
    return True


def living() -> dict[CodeType, list[FunctionType]]:
    """The functions that exist, by their code."""
    found: dict[CodeType, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found.setdefault(each.__code__, []).append(each)
    return found


def patch(functions: dict[CodeType, CodeType], living: dict[CodeType, list[FunctionType]]) -> int:
    """Give the functions that exist their new code; returns how many there were."""
    met = [(each, code) for old, code in functions.items() for each in living.get(old, ())]
    for each, code in met:
        each.__code__ = code
    return len(met)
