"""Prevents a public call that does not say what it takes, gives and raises, or says what is not so.

Google style: ``Args:``, ``Returns:``, ``Raises:``. The faces of transactions and of asyncio take
the arguments of the plain ones (``test_faces`` compares them), and say so of a class or a call.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import errors
from logstore.aio.store import AsyncGroup, AsyncStore, AsyncStream
from logstore.api.transaction import TransactionGroup, TransactionStream
from tests.house.repo import modules, tree
from tests.support.parameters import parameters

PLAIN = (logstore.Store, logstore.Stream, logstore.Group)
KIN = (
    logstore.Transaction, TransactionStream, TransactionGroup, AsyncStore, AsyncStream, AsyncGroup,
)  # fmt: skip
SECTIONS = ("Args", "Returns", "Raises")
# What every call of a store may raise, as the docstring of Store says.
ANY_CALL = {"ClosedError", "StoreGoneError", "ReadOnlyError"}
# Modules in which errors of arguments are raised, followed from call to call.
FOLLOWED = [
    path for path in modules("logstore")
    if path.parts[1] in {"api", "ids.py", "options.py"}
]  # fmt: skip
Call = tuple[str, Callable[..., Any]]


def calls(face: type) -> Iterator[Call]:
    """The public methods of a face, those of its bases included."""
    for name in dir(face):
        found = inspect.getattr_static(face, name)
        if not name.startswith("_") and inspect.isfunction(found):
            yield f"{face.__name__}.{name}", found


def sections(function: Callable[..., Any]) -> dict[str, dict[str, str]]:
    """Of each section of a docstring its items, by name; ``Returns`` has none."""
    told: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for line in (inspect.getdoc(function) or "").splitlines():
        head = re.fullmatch(r"(\w+):", line)
        item = re.fullmatch(r"    (\w+(?:, \w+)*): (.*)", line)
        if head is not None and head[1] in SECTIONS:
            current = told.setdefault(head[1], {})
        elif current is not None and item is not None:
            current |= dict.fromkeys(item[1].split(", "), item[2])
    return told


class Raising:
    """Which errors the functions of some modules raise, and which of each other they call.

    Functions go by ``module:name``, methods by ``Class.name``; those of a base are a face's, too.
    """

    def __init__(self) -> None:
        self.raised: dict[str, set[str]] = {}
        self.called: dict[str, set[str]] = {}
        self._kin = {
            base.__name__: [each.__name__ for each in face.__mro__]
            for face in PLAIN for base in face.__mro__
        }  # fmt: skip
        for path in FOLLOWED:
            known = imported(path)
            for node in tree(path).body:
                if isinstance(node, ast.FunctionDef):
                    self._add(f"{path.stem}:{node.name}", node, known)
                elif isinstance(node, ast.ClassDef):
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef):
                            self._add(f"{node.name}.{each.name}", each, known)

    def _add(self, key: str, function: ast.FunctionDef, known: dict[str, str]) -> None:
        raised, called = self.raised.setdefault(key, set()), self.called.setdefault(key, set())
        owner = key.partition(".")[0]
        for node in ast.walk(function):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised.add(ast.unparse(node.exc.func))
            elif isinstance(node, ast.Call):
                of, _, name = ast.unparse(node.func).rpartition(".")
                if of == "self":
                    called |= {f"{each}.{name}" for each in self._kin.get(owner, [])}
                elif of in known and ":" not in known[of]:
                    called.add(f"{known[of]}:{name}")
                elif not of and name in known:
                    called.add(known[name])

    def of(self, face: str, name: str) -> set[str]:
        """The errors of a method, and of all that it calls."""
        seen: set[str] = set()
        left = {f"{each}.{name}" for each in self._kin.get(face, [])}
        while left:
            one = left.pop()
            seen.add(one)
            left |= self.called.get(one, set()) - seen
        return {error for one in seen for error in self.raised.get(one, set())}


def imported(path: Path) -> dict[str, str]:
    """What a module calls the modules that are followed, and their functions and its own."""
    stems = {each.stem for each in FOLLOWED}
    known = {
        node.name: f"{path.stem}:{node.name}"
        for node in tree(path).body if isinstance(node, ast.FunctionDef)
    }  # fmt: skip
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logstore"):
            stem = str(node.module).rpartition(".")[2]
            for alias in node.names:
                called = alias.asname or alias.name
                if alias.name in stems:
                    known[called] = alias.name
                elif stem in stems:
                    known[called] = f"{stem}:{alias.name}"
    return known


RAISING = Raising()
PLAIN_CALLS = [call for face in PLAIN for call in calls(face)]
KIN_CALLS = [call for face in KIN for call in calls(face)]


@pytest.mark.parametrize(("name", "function"), PLAIN_CALLS, ids=[name for name, _ in PLAIN_CALLS])
def test_a_call_says_what_it_takes_gives_and_raises(
    name: str, function: Callable[..., Any]
) -> None:
    told = sections(function)
    signature = inspect.signature(function)
    plain = [each for each in signature.parameters if each != "self"]
    args = list(told.get("Args", {}))
    assert args == plain or sorted(args) == sorted(parameters(function))
    assert ("Returns" in told) == (str(signature.return_annotation) != "None")
    for error in told.get("Raises", {}):
        assert isinstance(getattr(logstore, error, getattr(builtins, error, None)), type), error
    public = {error for error in RAISING.of(*name.split(".")) if error in logstore.__all__}
    assert public - ANY_CALL - set(told.get("Raises", {})) == set()


@pytest.mark.parametrize(("name", "function"), KIN_CALLS, ids=[name for name, _ in KIN_CALLS])
def test_docstrings_of_other_faces_name_the_plain_call(
    name: str, function: Callable[..., Any]
) -> None:
    text = inspect.getdoc(function) or ""
    assert text
    if "Args" in sections(function) or len(inspect.signature(function).parameters) == 1:
        return
    of = re.search(r"arguments are those of :class:`logstore\.(\w+)`", kin(name).__doc__ or "")
    named = [(of[1], function.__name__)] if of is not None else []
    named += re.findall(r"``(Store|Stream|Group)\.(\w+)``", text)
    assert any(hasattr(getattr(logstore, face), method) for face, method in named), text


def kin(name: str) -> type:
    """The face of a call."""
    return next(face for face in KIN if face.__name__ == name.split(".", maxsplit=1)[0])


def test_raised_errors_are_followed_through_calls() -> None:
    """A canary: a test that finds no errors would stay green for ever."""
    assert {"InvalidIDError", "OptionError"} <= RAISING.of("Stream", "range")
    assert "EntryTypeError" in RAISING.of("Stream", "add_many")
    assert "UsageError" in RAISING.of("Store", "follow")  # through the module ``read``
    assert "OptionError" in RAISING.of("Store", "release_pins")  # ``store_info``
    assert "OptionError" in RAISING.of("Group", "consume")  # ``worker``, and its loop


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    """The docstring draws it: a class under its base, and in brackets the base of Python's."""
    drawn: dict[str, tuple[str | None, str | None]] = {}
    above: list[str] = []
    lines = re.findall(r"^    ([|` -]*)(\w+)(?: \((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    for branches, name, python in lines:
        depth = len(branches) // 4
        above[depth:] = [name]
        drawn[name] = (above[depth - 1] if depth else None, python or None)
    kinds = {
        name: kind for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.Error)
    }  # fmt: skip
    assert set(drawn) == set(kinds)
    for name, (parent, python) in drawn.items():
        bases = {base.__name__: base.__module__ for base in kinds[name].__bases__}
        assert parent in bases or name == "Error", name
        builtin = [base for base, module in bases.items() if module == "builtins"]
        assert builtin == ([python] if python else []) or name == "Error", name
