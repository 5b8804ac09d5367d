"""Prevents compiled classes that take other arguments than their types say, found out in use."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from logstore.engine import lane
from logstore.engine.lane import lane_loading
from logstore.engine.reading import pure_reader, reader_interface
from logstore.engine.reading import reader_loading as reading_loading
from tests.support.compiled import has_parameters, parameter_names

STUB = ast.parse((Path(lane.__file__).parent / "native.pyi").read_text())


def names_of(function: ast.FunctionDef) -> list[str]:
    """The parameters of a function of a stub."""
    given = function.args
    return [
        each.arg
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        if each.arg != "self"
    ]


def test_the_lane_takes_what_its_stub_says() -> None:
    module = lane_loading.native_or_none
    if module is None:
        pytest.skip("the lane was not compiled, or is not in use")
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            assert parameter_names(getattr(module, node.name)) == names_of(node), node.name
        elif isinstance(node, ast.ClassDef):
            made = getattr(module, node.name)
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name != "__init__":
                    found = getattr(made, each.name)
                    assert parameter_names(found) == names_of(each), (node.name, each.name)
                elif isinstance(each, ast.FunctionDef) and has_parameters(made):
                    assert parameter_names(made) == names_of(each), node.name


def methods_of(kind: type) -> dict[str, list[str]]:
    """The public methods of an interface or a class, and what they take."""
    return {
        name: [each for each in inspect.signature(value).parameters if each != "self"]
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


@pytest.mark.parametrize("kind", [reader_interface.Reader, reader_interface.NodeCache])
def test_the_read_core_takes_what_its_interface_says(kind: type) -> None:
    module = reading_loading.native_or_none
    if module is None:
        pytest.skip("the read core was not compiled, or is not in use")
    compiled = getattr(module, kind.__name__)
    for name, expected in methods_of(kind).items():
        assert parameter_names(getattr(compiled, name)) == expected, name


def test_the_cache_in_python_takes_what_its_interface_says() -> None:
    assert (
        methods_of(reader_interface.NodeCache).items() <= methods_of(pure_reader.NodeCache).items()
    )
