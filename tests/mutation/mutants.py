"""The ways in which a module can be broken at one place: comparisons, arithmetic, constants,
conditions, and calls, assignments and raises that are left out.

Invariants: a mutant is one replacement of bytes; the same source gives the same mutants in the same
order. Left alone is what has no behaviour to test: annotations, assertions, what is logged, texts,
`strict=` of zip; and what any test would notice and so only raises the share: names set to None,
`/` between parts of a path. Knows nothing of files and tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """One replacement: the bytes [start, end) of the source become ``put``."""

    line: int  # counted from 1
    how: str
    start: int
    end: int
    put: str
    first: int  # the lines of the statement that is changed; 0 if it runs at import
    last: int


Change = tuple[str, int, int, str]

COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "//"), ast.Mod: ("%", "//"),
    ast.FloorDiv: ("//", "*"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: (r"\|", "&"),
    ast.BitXor: (r"\^", "&"),
}  # fmt: skip
LOGGERS = {"log", "logger", "warnings"}


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    return sorted(set(_Finder(source).found), key=_place)


def mutated(source: str, mutant: Mutant) -> str:
    """The module with one mutant in it."""
    data = source.encode()
    return (data[: mutant.start] + mutant.put.encode() + data[mutant.end :]).decode()


def shown(source: str, mutant: Mutant) -> tuple[str, str]:
    """The changed lines before and after, each joined to one line."""
    broken = mutated(source, mutant)
    more = len(broken.splitlines()) - len(source.splitlines())
    end = source.encode().count(b"\n", 0, mutant.end) + 1
    return (
        _joined(source.splitlines()[mutant.line - 1 : end]),
        _joined(broken.splitlines()[mutant.line - 1 : end + more]),
    )


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _place(mutant: Mutant) -> tuple[int, int, str]:
    return mutant.start, mutant.end, mutant.put


def is_program(source: str, mutant: Mutant) -> bool:
    """Whether the mutant compiles; it is no mutant otherwise."""
    try:
        compile(mutated(source, mutant), "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Walks a module and gathers what can be changed."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.found: list[Mutant] = []
        self.statement: ast.stmt | None = None
        self.within = 0  # how many functions
        self.visit(ast.parse(source))

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            self._changes(node)
            super().visit(node)
            return
        outer, self.statement = self.statement, node
        if not _is_left_alone(node):
            self._changes(node)
            super().visit(node)
        self.statement = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.within += 1
        for child in node.body:
            self.visit(child)
        self.within -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.visit(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in {"isinstance", "cast", "TypeVar"}:
            return
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg != "strict":
                self.visit(keyword.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def _changes(self, node: ast.AST) -> None:
        for how, start, end, put in _changes(self, node):
            first = self.statement
            assert first is not None
            line = self.data.count(b"\n", 0, start) + 1
            until = line
            if isinstance(first, ast.If | ast.While | ast.For | ast.With | ast.Try | ast.ClassDef):
                begun = min(first.lineno, line)
            else:
                begun, until = first.lineno, first.end_lineno or line
            if not self.within:
                begun = until = 0
            self.found.append(Mutant(line, how, start, end, put, begun, until))

    def at(self, node: ast.expr | ast.stmt) -> int:
        """Where the node begins, in bytes."""
        return self.starts[node.lineno - 1] + node.col_offset

    def past(self, node: ast.expr | ast.stmt) -> int:
        """Where the node ends, in bytes."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The node as it is written."""
        return self.data[self.at(node) : self.past(node)].decode()

    def sign(self, start: int, end: int, pattern: str, put: str, how: str) -> Iterator[Change]:
        """An operator that stands somewhere in [start, end)."""
        met = re.search(pattern.encode(), self.data[start:end])
        if met:
            yield how, start + met.start(), start + met.end(), put


def _changes(of: _Finder, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(of, node)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(of, node)
    elif isinstance(node, ast.expr):
        yield from _of_operator(of, node)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        test = node.test
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            yield "condition", of.at(test), of.past(test), f"not ({of.text(test)})"


def _of_operator(of: _Finder, node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
                pattern, put = COMPARE[type(operator)]
                yield from of.sign(of.past(left), of.at(right), pattern, put, "comparison")
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            pattern, put = ARITHMETIC[type(node.op)]
            yield from of.sign(of.past(node.left), of.at(node.right), pattern, put, "arithmetic")
        case ast.BoolOp():
            word, put = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            left, right = node.values[-2:]
            yield from of.sign(of.past(left), of.at(right), rf"\b{word}\b", put, "condition")
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", of.at(node), of.past(node), f"bool({of.text(node.operand)})"
        case _:
            pass


def _of_constant(of: _Finder, node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", of.at(node), of.past(node), str(not value)
    elif isinstance(value, int):
        yield "constant", of.at(node), of.past(node), str(value + 1)
    elif isinstance(value, bytes):
        yield "constant", of.at(node), of.past(node), repr(value + b"X")


def _of_statement(of: _Finder, node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            pattern, put = ARITHMETIC[type(node.op)]
            start, end = of.past(node.target), of.at(node.value)
            yield from of.sign(start, end, pattern + "=", put + "=", "arithmetic")
            yield from of.sign(start, end, pattern + "=", "=", "assignment")
        case ast.Expr(value=ast.Call()) | ast.Raise():
            how = "raise left out" if isinstance(node, ast.Raise) else "call left out"
            yield how, of.at(node), of.past(node), "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()], value=value):
            if not isinstance(value, ast.Constant):
                yield "assignment", of.at(value), of.past(value), "None"
        case ast.Break() | ast.Continue():
            put = "continue" if isinstance(node, ast.Break) else "break"
            yield "loop", of.at(node), of.past(node), put
        case _:
            pass


def _is_left_alone(node: ast.stmt) -> bool:
    """Whether nothing that the statement does is behaviour; a raise is left out whole, or not."""
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGGERS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__")
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case _:
            return False
