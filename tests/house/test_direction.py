"""Prevents a room, or a module of the core, that stands outside the checked direction of imports.

The direction itself is checked by import-linter, in `make lint`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.repo import MAPPED, ROOMS, modules, project, tree
from tests.support.processes import run_program


def layered() -> list[str]:
    """The names in the layers of the contract, from the top."""
    contract = project()["tool"]["importlinter"]["contracts"][0]
    assert contract["type"] == "layers"
    assert contract["exhaustive"]
    lines = [line.replace("|", ":").split(":") for line in contract["layers"]]
    return [name.strip(" ()") for line in lines for name in line]


def test_the_contract_names_every_room_and_module() -> None:
    inside = [path for path in modules("logstore") if path.name != "__init__.py"]
    there = {path.parts[1].removesuffix(".py") for path in inside} | set(MAPPED)
    assert there - set(layered()) == set()


def test_the_contract_names_nothing_twice() -> None:
    assert len(layered()) == len(set(layered()))


def test_only_the_index_imports_lmdb() -> None:
    outside = [path for path in modules(*ROOMS) if path.parts[0] != "index"]
    assert [str(path) for path in outside if "lmdb" in imported(tree(path))] == []


def test_no_module_needs_itself() -> None:
    """Types included, which import-linter leaves out: what type checkers alone import counts."""
    paths = [path for path in modules(*ROOMS) if path.name != "__init__.py"]
    graph = {module_name(path): set[str]() for path in paths}
    for path, needed in zip(paths, graph.values(), strict=True):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = {f"{node.module}.{alias.name}" for alias in node.names}
                needed.update({node.module, *named} & set(graph))
    while free := {name for name, needed in graph.items() if not needed & set(graph)}:
        graph = {name: needed for name, needed in graph.items() if name not in free}
    assert graph == {}


def module_name(path: Path) -> str:
    """The name by which a module is imported."""
    inside = path.parts if path.parts[0] == "logstore" else ("logstore", *path.parts)
    return ".".join(inside).removesuffix(".py")


CORE = {"lmdb", "msgpack", "crc32c"}
USED = """
import logstore
with logstore.open({path!r}) as store:
    stream = store["s"]
    stream.add_many([{{"a": "1"}}] * 10)
    stream.add({{"a": "2"}}, producer="p", idempotent_id="1")
    group = stream.group("g", start="0")
    with store.transaction() as tx:
        tx.ack(*group.read("c", count=5))
    stream.delete_range("-", "+", purge=True)
    store.checkpoint()
    assert store.info().streams == 1 and stream.info_full().groups == 1
"""


def test_a_store_needs_three_packages(tmp_path: Path) -> None:
    """The others are for commands, Spark, servers: who embeds a store need not load them."""
    wanted = project()["project"]["dependencies"]
    others = {re.split(r"[^\w-]", each)[0] for each in wanted} - CORE
    blocked = sorted(others | {"redis", "valkey", "pyarrow", "pyspark", "pandas", "numpy"})
    code = f"import sys\nfor name in {blocked}: sys.modules[name] = None\n"
    code += USED.format(path=str(tmp_path / "store"))
    assert run_program(code).stderr == ""


@pytest.mark.parametrize("blocked", ["pyarrow", "pyspark", "pandas", "numpy"])
def test_the_core_is_imported_without(blocked: str) -> None:
    code = f"import sys; sys.modules[{blocked!r}] = None; import logstore, logstore.tools.commands"
    run_program(code)


def imported(module: ast.Module) -> set[str]:
    """The distributions, by their import names, that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names
