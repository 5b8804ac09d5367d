"""Prevents a wheel from holding modules, compiled or not, that are in the source no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_engine import INTERPRETED, PACKAGES, SINGLE

from tests.house.repo import ROOT

SETUP = """
from setuptools import Extension, setup
from build_engine import BuildExt
setup(name="small", version="1", packages=["small"], cmdclass={"build_ext": BuildExt},
      ext_modules=[Extension("small.native", ["native.c"])])
"""
NATIVE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }
"""


def build(project: Path) -> set[str]:
    """Build a project; what is in its build folder then, without the endings of compiled ones."""
    environment = {**os.environ, "LOGSTORE_BUILD_ENGINE": "0"}
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", "built"]
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    built = project / "built"
    return {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}


def test_what_an_earlier_build_left_is_removed(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    shutil.copy(ROOT / "build_engine.py", tmp_path)
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "native.c").write_text(NATIVE)
    (tmp_path / "small").mkdir()
    for name in ("__init__", "stays", "goes"):
        (tmp_path / "small" / f"{name}.py").touch()
    first = build(tmp_path)
    assert "small/goes.py" in first
    suffix = next(name for name in first if name.startswith("small/native")).partition(".")[2]
    # As if the engine had been compiled before.
    for name in ("small/goes", "small/stays", "small__mypyc"):
        (tmp_path / "built" / f"{name}.{suffix}").touch()
    (tmp_path / "small" / "goes.py").unlink()
    assert build(tmp_path) == first - {"small/goes.py"}
    assert build(tmp_path) == first - {"small/goes.py"}


def test_what_is_to_be_compiled_is_there() -> None:
    """A module that was renamed since: no wheel can be built then."""
    named = {f"logstore/{name.replace('.', '/')}" for name in (*SINGLE, *INTERPRETED)}
    assert sorted(name for name in named if not (ROOT / f"{name}.py").is_file()) == []
    assert all((ROOT / "logstore" / name.replace(".", "/")).is_dir() for name in PACKAGES)
