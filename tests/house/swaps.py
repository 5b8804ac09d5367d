"""Finds assignments to attributes of compiled classes that free a value with work to do at its end.

mypy tells the types, of the attribute and of what it belongs to. A value is *plain* if freeing it
frees memory and does nothing else: numbers, text, containers of plain values, compiled classes
whose attributes are all plain. Anything else may close a file, run a finaliser, or let go of the
interpreter, and may be assigned only as logstore/engine/shm/late_free.py says.

Invariants: what is not known to be plain is not plain. Containers free what they held behind their
own change (CPython sees to that); items of a list do not in compiled code, and are looked at, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mypy import build, nodes, types
from mypy.main import process_options
from mypy.server.subexpr import get_subexpressions

PLAIN = {
    *(f"builtins.{name}" for name in ("int", "bool", "float", "str", "bytes", "bytearray")),
    *("builtins.memoryview", "builtins.range", "logstore.codec.pending_run.PendingRun"),
    *("_thread.lock", "_thread.LockType", "_thread.RLock"),
}
CONTAINERS = {
    *(f"builtins.{name}" for name in ("list", "dict", "set", "frozenset", "tuple")),
    *(f"collections.{name}" for name in ("deque", "OrderedDict", "Counter", "defaultdict")),
    *(f"typing.{name}" for name in ("Sequence", "Mapping", "Iterable", "Collection")),
}
Known = dict[tuple[int, int, int | None, int | None], types.Type]


@dataclass(frozen=True)
class Store:
    """One assignment to an attribute whose old value may have work to do."""

    place: str  # file and line
    owner: str  # the compiled class, or list
    attribute: str
    why: str  # what in it is not plain
    swapped: bool  # as it must be done


def found(files: Iterable[Path], compiled: set[str]) -> list[Store]:
    """All such assignments in these files; `compiled` names modules as they are imported.

    Other packages are not followed: what is theirs is not known then, and not plain.
    """
    arguments = [
        "--config-file=", "--ignore-missing-imports", "--follow-imports=skip",
        "--python-version=3.11", "--no-incremental", "--cache-dir=/dev/null",
    ]  # fmt: skip
    sources, options = process_options([*arguments, *map(str, files)])
    options.export_types = options.preserve_asts = True
    result = build.build(sources, options)
    assert result.errors == [], result.errors
    looked_at = {source.module for source in sources}
    return [
        store
        for name, state in result.graph.items()
        if name in looked_at and state.tree is not None and state.xpath
        for store in _of_module(Path(state.xpath), _types(state.tree, result.types), compiled)
    ]


def _types(tree: nodes.MypyFile, every: dict[nodes.Expression, types.Type]) -> Known:
    return {
        (each.line, each.column, each.end_line, each.end_column): every[each]
        for each in get_subexpressions(tree)
        if each in every
    }


def _of_module(path: Path, known: Known, compiled: set[str]) -> Iterator[Store]:
    for owner, function, block, at, target in _targets(ast.parse(path.read_text()).body):
        value = target.value
        spot = (value.lineno, value.col_offset, value.end_lineno, value.end_col_offset)
        for kind in _instances(known.get(spot)):
            name, attribute = kind.type.name, ast.unparse(target)
            inside = _module(path) in compiled
            if isinstance(target, ast.Attribute):
                if kind.type.module_name not in compiled:
                    continue
                if function == "__init__" and owner == name:
                    continue  # there was nothing before
                attribute = target.attr
                symbol = kind.type.get(attribute)
                if symbol is None or not isinstance(symbol.node, nodes.Var):
                    continue  # a property: it sets another attribute
                held = symbol.node.type
            elif inside and kind.type.fullname == "builtins.list":
                held = kind.args[0]
            else:
                continue
            why = "not known" if held is None else _not_plain(held, compiled)
            if why:
                swapped = _is_swap(block, at, target)
                yield Store(f"{path}:{target.lineno}", name, attribute, why, swapped)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


Target = tuple[str, str, list[ast.stmt], int, ast.Attribute | ast.Subscript]


def _targets(body: list[ast.stmt], owner: str = "", function: str = "") -> Iterator[Target]:
    """What is assigned to or deleted: class, function, the block, and where in it that is."""
    for at, statement in enumerate(body):
        if isinstance(statement, ast.ClassDef):
            yield from _targets(statement.body, statement.name)
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _targets(statement.body, owner, statement.name)
            continue
        blocks = [
            getattr(each, name)
            for each in (statement, *getattr(statement, "handlers", ()),
                         *getattr(statement, "cases", ()))
            for name in ("body", "orelse", "finalbody")
            if isinstance(getattr(each, name, None), list)
        ]  # fmt: skip
        inner = {id(node) for block in blocks for each in block for node in ast.walk(each)}
        for node in ast.walk(statement):
            stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            if stored and id(node) not in inner and isinstance(node, ast.Attribute | ast.Subscript):
                yield owner, function, body, at, node
        for block in blocks:
            yield from _targets(block, owner, function)


def _instances(kind: types.Type | None) -> Iterator[types.Instance]:
    proper = types.get_proper_type(kind)
    if isinstance(proper, types.UnionType):
        for item in proper.items:
            yield from _instances(item)
    elif isinstance(proper, types.TupleType):
        yield proper.partial_fallback
    elif isinstance(proper, types.Instance):
        yield proper


def _not_plain(kind: types.Type, compiled: set[str], seen: frozenset[str] = frozenset()) -> str:
    """What in a type may have work to do when it is freed; empty if nothing."""
    proper: Any = types.get_proper_type(kind)
    if isinstance(proper, types.NoneType | types.LiteralType | types.UninhabitedType):
        return ""
    if isinstance(proper, types.UnionType | types.TupleType):
        return _first(proper.items, compiled, seen)
    if not isinstance(proper, types.Instance):
        return str(proper)  # Any, a callable
    name = proper.type.fullname
    if name in PLAIN or name in seen or proper.type.is_enum:
        return ""
    if name in CONTAINERS:
        return _first(proper.args, compiled, seen)
    if proper.type.module_name not in compiled:
        return name
    for base in proper.type.mro[:-1]:
        for attribute, symbol in base.names.items():
            node = symbol.node
            if attribute.startswith("__") or not isinstance(node, nodes.Var) or node.type is None:
                continue
            if node.is_property or node.is_classvar:
                continue
            if why := _not_plain(node.type, compiled, seen | {name}):
                return f"{base.name}.{attribute}: {why}"
    return ""


def _first(items: Iterable[types.Type], compiled: set[str], seen: frozenset[str]) -> str:
    return next((why for each in items if (why := _not_plain(each, compiled, seen))), "")


def _is_swap(block: list[ast.stmt], at: int, target: ast.Attribute | ast.Subscript) -> bool:
    """Whether the old value was taken in front of the assignment, and is used behind it."""
    what = ast.unparse(target)
    names = {
        ast.unparse(each.targets[0])
        for each in block[:at]
        if isinstance(each, ast.Assign) and ast.unparse(each.value) == what
    }
    used = {
        node.id
        for each in block[at + 1 :]
        for node in ast.walk(each.test if isinstance(each, ast.If) else each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        and (isinstance(each, ast.Expr | ast.If))
    }  # fmt: skip
    return bool(names & used)
