"""A mutant of what runs when a module is imported, put into a process that has imported it already.

The module is run once more beside the one that is there; numbers, texts, bytes and tuples of them
that come out otherwise are put in the place of those that are there: of the module and of those
that import them from it, of its classes, and as defaults of its functions.

Invariant: meant for a fork, nothing is put back. What another module computed from such a value
when it was imported stays as it was: a test may fail to notice a change that it would notice, never
the other way round.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

PLAIN = (bool, int, float, str, bytes)
DEFAULTS = ("__defaults__", "__kwdefaults__")


def is_plain(value: object) -> bool:
    """Whether it is a value that can be compared and replaced."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    return type(value) in PLAIN or value is None


def restate(module: ModuleType, source: str) -> int:
    """Give the module the values that it has if it reads like this; how many there were."""
    name, file = module.__name__, module.__file__ or ""
    fresh = ModuleType(name)
    fresh.__file__, fresh.__package__ = file, module.__package__
    sys.modules[name] = fresh  # dataclasses look there
    try:
        exec(compile(source, file, "exec", dont_inherit=True), fresh.__dict__)
    finally:
        sys.modules[name] = module
    count = 0
    for key, old, new in _pairs(vars(module), vars(fresh)):
        if is_plain(old) and is_plain(new):
            count += _replace(module, key, old, new)
        elif isinstance(old, FunctionType) and isinstance(new, FunctionType):
            count += _defaults(old, new)
        elif isinstance(old, type) and isinstance(new, type) and old.__module__ == name:
            count += _class(old, new)
    return count


def _pairs(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    for key in [key for key in old if key in new]:
        if not key.startswith("__") or key in ("__init__", "__new__"):
            yield key, old[key], new[key]


def _differ(old: object, new: object) -> bool:
    return type(old) is not type(new) or old != new


def _replace(module: ModuleType, key: str, old: object, new: object) -> int:
    """In the module, and in those that import this name from it."""
    if not _differ(old, new):
        return 0
    vars(module)[key] = new
    for each in list(sys.modules.values()):
        names = getattr(each, "__dict__", {})
        if each is not module and key in names and _imports(each, module.__name__, key):
            names[key] = new
    return 1


def _imports(module: ModuleType, name: str, key: str) -> bool:
    try:
        tree = ast.parse(Path(module.__file__ or "").read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == name
        and any(each.name == key and each.asname in (None, key) for each in node.names)
        for node in ast.walk(tree)
    )


def _defaults(old: FunctionType, new: FunctionType) -> int:
    count = 0
    for which in DEFAULTS:
        before, after = getattr(old, which), getattr(new, which)
        if is_plain(before) and is_plain(after) and _differ(before, after):
            setattr(old, which, after)
            count += 1
    return count


def _class(old: type, new: type) -> int:
    count = 0
    for key, before, after in _pairs(vars(old), vars(new)):
        if isinstance(before, FunctionType) and isinstance(after, FunctionType):
            count += _defaults(before, after)
        elif is_plain(before) and is_plain(after) and _differ(before, after):
            setattr(old, key, after)
            count += 1
    return count
