"""Prevents a room, or a module of the core, that stands outside the checked direction of imports.

The direction itself is checked by import-linter, in `make lint`.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.house.repo import MAPPED, ROOMS, modules, project, tree


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


@pytest.mark.parametrize("blocked", ["pyarrow", "pyspark", "pandas", "numpy"])
def test_the_core_is_imported_without(blocked: str) -> None:
    code = f"import sys; sys.modules[{blocked!r}] = None; import logstore, logstore.tools.commands"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def imported(module: ast.Module) -> set[str]:
    """The distributions, by their import names, that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names
