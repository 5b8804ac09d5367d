"""Prevents Python in a sentence of a page, or in an example that is not run, that is not so.

Looked at are names of modules, of methods of public classes, of keywords, of errors, and commands
of the protocol. Names of other libraries are listed, so that a name that nobody has is found.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

import logstore
import logstore.aio
from benchmarks import __main__ as benchmarks
from logstore.aio.store import AsyncGroup, AsyncStore, AsyncStream
from logstore.api.transaction import TransactionGroup, TransactionStream
from logstore.jobs import Job, Jobs
from logstore.loading import load
from logstore.wire.catalogue import table_of
from tests.house.pages import BLOCK
from tests.house.repo import ROOT
from tests.house.shown import PAGES, Shown, mentions, rows, variables
from tests.support.parameters import parameters

STORES, STREAMS = (logstore.Store, AsyncStore), (logstore.Stream, AsyncStream, TransactionStream)
GROUPS = (logstore.Group, AsyncGroup, TransactionGroup)
ENTRIES = (logstore.Entry, logstore.Delivery, logstore.DeadLetter)
# What pages call things of these classes.
CALLED: dict[str, tuple[type, ...]] = {
    "store": STORES, "stream": STREAMS, "race": STREAMS, "group": GROUPS,
    "tx": (logstore.Transaction,), "entry": ENTRIES, "delivery": ENTRIES, "scan": (logstore.Scan,),
    "jobs": (Jobs,), "job": (Job,),
}  # fmt: skip
CALLED |= {face.__name__: (face,) for faces in CALLED.values() for face in faces}
FACES = {face for faces in CALLED.values() for face in faces}
# What a call gives that a page goes on with.
GIVEN = {"stream": STREAMS, "group": GROUPS, "scan": (logstore.Scan,)}
IN_TRANSACTION = {"stream": (TransactionStream,), "group": (TransactionGroup,)}
FUNCTIONS = (
    ("logstore.aio", "open"), ("logstore.duckdb", "attach"), ("logstore.polars", "scan"),
    ("logstore.api.store", "open_store"), ("logstore.transfer", "export_parquet"),
    ("logstore.telemetry.opentelemetry", "observe"), ("logstore.telemetry.prometheus", "Collector"),
    ("logstore.spark_io", "register"),
)  # fmt: skip
# Names of other libraries, of the reader's own program, and of Python.
FOREIGN = {
    *("SparkSession", "spark", "pa", "duckdb", "field", "json", "logging", "result", "task"),
    *("Lap", "add_one", "send", "dict", "len", "reversed", "str", "Redis"),
    *("day", "f", "fs", "getOrCreate", "newSession", "select"),
    *("cache", "decimal", "head", "load", "mode", "option", "trigger", "put_if_empty"),
    *(
        "wait_result",
        "events",
        "exports",
        "information_schema",
        "tags",
        "mkfs",
        "app",
        "list",
        "redis_client",
        "query",
        "enum",
        "Decimal",
        "UUID",
        "date",
        "datetime",
        "time",
        "int64",
        "DECIMAL",
        "decimal128",
        "Datetime",
        "TIME",
        "TIMESTAMP",
    ),
}
# What pages say is not here.
NOT_HERE = {"CLIENT TRACKING"}
# Loggers, and a unit.
OTHER_DOTTED = {
    "logstore.service",
    "logstore.audit",
    "logstore.server",
    "logstore.spark",
    "logstore.entries",
}
# Keywords of other things: options of mkfs, of units and of the environment.
OF_OTHERS = {
    "SuccessExitStatus",
    *("OnFailure", "PYTHONMALLOC", "ProcSubset", "Restart", "SystemMaxUse", "TERM", "TIMES"),
    *("After", "Type", "UMask", "data", "day", "db", "room", "delay", "failOnDataLoss", "idColumn"),
    "tags.fw",  # a path of a condition
}
FILE = re.compile(r"[\w./-]+\.(?:py|pyx|pxi|md|service|timer|yaml|json|conf|mdb)")
# Pages that name what is inside; tests/house/test_docs.py looks at those names.
INSIDE = ("docs/internals.md", "CONTRIBUTING.md", "tests/")
ERROR = re.compile(r"[A-Z]\w+(?:Error|Interrupt)")


class NotThereError(Exception):
    """Something is shown that is not there."""


def outside() -> Iterator[Shown]:
    """What pages for users name."""
    return (one for one in mentions() if not one.where.startswith(INSIDE))


def parsed(text: str) -> ast.AST | None:
    """The code of a sentence, where it is Python: ``add(ttl=)`` names a keyword of a method."""
    text = re.sub(r"=(?=[,)]|$)", "=...", text)
    text = re.sub(r"(?<=[ (])\.\.(?=[,)\]])", "...", text)
    text = f"{text} pass" if text.endswith(":") else text
    text = f"{text}: pass" if text.startswith("async for ") else text
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        found: ast.AST = compile(text, "page", "exec", flags)
    except SyntaxError:
        return None
    return found


def check(tree: ast.AST) -> None:
    """Raise NotThereError if something of the code is not there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            faces(node)
        elif isinstance(node, ast.Call):
            check_call(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            name = ast.unparse(node.targets[0])
            if name not in all_keywords() | OF_OTHERS | variables():
                raise NotThereError(f"nothing takes {name}=")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logstore"):
            for alias in node.names:
                dotted(f"{node.module}.{alias.name}")


def faces(node: ast.expr) -> tuple[Any, ...]:
    """The classes, or functions, that an expression may be; NotThereError if there is none."""
    if isinstance(node, ast.Name):
        if node.id not in {*CALLED, *FOREIGN, "logstore"}:
            raise NotThereError(f"nobody knows {node.id}")
        return CALLED.get(node.id, ())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        in_transaction = ast.unparse(node.func.value) == "tx"
        return (IN_TRANSACTION if in_transaction else GIVEN).get(node.func.attr, ())
    if not isinstance(node, ast.Attribute):
        return ()
    name = ast.unparse(node)
    if name.startswith("logstore."):
        return (dotted(name),)
    of = faces(node.value)
    found = [value for each in of if (value := attribute(each, node.attr)) is not None]
    if of and isinstance(of[0], type) and not found:
        raise NotThereError(f"{ast.unparse(node.value)} has no {node.attr}")
    return tuple(found)


def attribute(face: type, name: str) -> Any:
    """A method or an attribute of a class; None if it has none."""
    if any(name in getattr(each, "__annotations__", {}) for each in face.__mro__):
        return name
    return inspect.getattr_static(face, name, None)


def dotted(name: str) -> Any:
    """What a dotted name of ours is."""
    if name in OTHER_DOTTED:
        return None
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:at]))
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("logstore"):
                pytest.skip(f"{error.name} is not installed: make test has it")
            continue
        for part in parts[at:]:
            if not hasattr(found, part):
                raise NotThereError(f"{name} is not there")
            found = getattr(found, part)
        return found
    raise NotThereError(f"{name} is not there")


def check_call(node: ast.Call) -> None:
    """A call has a function, which takes what it is given."""
    if isinstance(node.func, ast.Name):
        name = node.func.id
        if name in FOREIGN:
            return
        called = [value for face in FACES if (value := attribute(face, name)) is not None]
        called += [load(module).__dict__[name] for module, each in FUNCTIONS if each == name]
        if not called:
            raise NotThereError(f"nothing has {name}()")
    else:
        called = list(faces(node.func))
    functions = [each for each in called if inspect.isfunction(each)]
    for keyword in node.keywords:
        taken = [each for each in functions if keyword.arg in parameters(each)]
        if keyword.arg and functions and not taken:
            raise NotThereError(f"{ast.unparse(node.func)} does not take {keyword.arg}=")


@cache
def all_keywords() -> set[str]:
    """Every keyword that something public takes."""
    functions: list[Callable[..., Any]] = [getattr(load(module), n) for module, n in FUNCTIONS]
    for face in FACES:
        members = (inspect.getattr_static(face, name) for name in dir(face) if name[0] != "_")
        functions += [each for each in members if inspect.isfunction(each)]
    functions += [Jobs.__init__]
    return {name for function in functions for name in parameters(function)}


def faults(found: list[Shown]) -> list[str]:
    """What is wrong with code that is shown."""
    wrong = []
    for one in found:
        tree = parsed(one.text)
        if tree is None or FILE.fullmatch(one.text):
            continue
        try:
            check(tree)
        except NotThereError as error:
            wrong.append(f"{one.where}: {one.text}: {error}")
    return wrong


def test_code_in_a_sentence_names_what_is_there() -> None:
    found = [one for one in outside() if re.search(r"\w=|\w\(|^[a-z_]+\.[a-z_]", one.text)]
    assert len(found) > 200
    assert faults(found) == []


def test_an_example_that_is_not_run_names_what_is_there() -> None:
    found = [
        Shown(f"{page}: {block['reason'].strip()}", block["seen"])
        for page in PAGES for block in BLOCK.finditer((ROOT / page).read_text())
        if block["reason"] and block["shown"] == "python"
    ]  # fmt: skip
    assert [one.where for one in found if parsed(one.text) is None] == []
    assert faults(found) == []


# Tables of options: a page, the head of the first column, and what it has all of, or some of.
ALL_OF: list[tuple[str, str, set[str]]] = [
    ("docs/analytics.md", "option of `stream.scan` and `store.scan`",
     {*parameters(logstore.Stream.scan), *parameters(logstore.Store.scan)}),
    ("docs/jobs.md", "of a task", {*parameters(Jobs.task)} - {"function"}),
    ("docs/durability.md", "policy", set(get_args(logstore.Sync))),
    ("docs/performance.md", "name", {module.NAME for module in benchmarks.SETS["workloads"]}),
]  # fmt: skip
SOME_OF: list[tuple[str, str, set[str]]] = [
    ("docs/groups.md", "option", {*parameters(logstore.Stream.read)}),
    ("docs/groups.md", "option", {*parameters(logstore.Group.read)}),
    ("docs/groups.md", "option", {*parameters(logstore.Store.read)}),
    ("docs/retention.md", "setting", {*parameters(logstore.Stream.configure)}),
    ("docs/retention.md", "field", set(logstore.StoreInfo.__annotations__)),
]


def test_tables_of_options_have_those_that_are_there() -> None:
    for page, head, wanted in ALL_OF:
        assert set(rows(page, head)) == wanted, (page, head)
    for page, head, wanted in SOME_OF:
        assert set(rows(page, head)) <= wanted, (page, head)


def test_errors_that_are_named_are_there() -> None:
    named = {(one.where, name) for one in outside() for name in ERROR.findall(one.text)}
    assert len(named) > 60
    known = {*dir(logstore), *dir(builtins)}
    assert sorted(each for each in named if each[1] not in known) == []


def test_commands_of_the_protocol_that_are_named_are_there() -> None:
    table = table_of("redis-8.10")
    missing, seen = [], 0
    for one in outside():
        words = re.findall(r"[A-Z]+\b(?!\w|=)", one.text)
        if not words or not one.text.startswith(words[0]) or one.text in {"XX", *NOT_HERE}:
            continue
        command = table.lookup([words[0].encode()])
        seen += command is not None
        below = [word.encode() for word in words[:2]]
        if (command is None and words[0].startswith("X")) or (
            command is not None and command.subcommands and table.lookup(below) is None
        ):
            missing.append(one)
    assert missing == []
    assert seen > 150


def test_commands_that_newcomers_know_are_taken(tmp_path: Path) -> None:
    """The left column of the table for those who come from Redis, in its order."""
    page = (ROOT / "docs" / "coming-from.md").read_text()
    rows = page.partition("| Redis | here |")[2].partition("\n\n")[0].splitlines()
    lines = [line for row in rows for line in re.findall(r"`([A-Z]+ [^`]+)`", row.split(" | ")[0])]
    assert len(lines) == 10
    with load("logstore.redis").Redis(tmp_path / "store") as client:
        for line in lines:
            words = re.sub(r"(?<=BLOCK )\d+", "1", line.replace(" id", " 1-1")).split()
            client.execute_command(*words)


@pytest.mark.parametrize(
    "text",
    ["store.strem", "stream.add({}, maxlen=)", "add(maxlen=)", "claim_idle=", "logstore.opne()",
     "await group.nothing()", "thing.read()", "tx.stream(name).range()",
     "from logstore.redis import Rediss", "entry.colour", "scan.to_numpy()"],
)  # fmt: skip
def test_a_missing_name_is_found(text: str) -> None:
    """A canary: a test that lets everything pass would stay green for ever."""
    assert faults([Shown("here", text)]) != []
