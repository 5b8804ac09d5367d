"""Prevents a wheel that lacks a part, holds one that is gone, or does not work where it is put."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.repo import MAPPED, ROOMS, ROOT, files, modules, project

SETUP = """
from setuptools import Extension, setup
from build_commands import BuildPy
setup(name="small", version="1", packages=["small"], cmdclass={"build_py": BuildPy},
      ext_modules=[Extension("small.native", ["native.c"])])
"""
NATIVE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }
"""
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
TRIED = """
import sys, logstore
with logstore.open(sys.argv[1]) as store:
    stream = store.stream("s")
    id = stream.add({"a": "b"})
    stream.group("g", "0").read("c")[0].ack()
    assert stream.get(id)["a"] == b"b"
    print(store.info().codec, store.info().core, logstore.__file__)
"""
COMPILED = {
    each["name"].replace(".", "/") for each in project()["tool"]["setuptools"]["ext-modules"]
}
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


def build(project: Path) -> set[str]:
    """Build a project; what is in its build folder then."""
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", "built"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    built = project / "built"
    return {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}


@needs_compiler
def test_files_of_an_earlier_build_are_removed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "build_commands.py", tmp_path)
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "native.c").write_text(NATIVE)
    (tmp_path / "small").mkdir()
    for name in ("__init__", "stays", "goes"):
        (tmp_path / "small" / f"{name}.py").touch()
    first = build(tmp_path)
    assert "small/goes.py" in first
    suffix = next(name for name in first if name.startswith("small/native")).partition(".")[2]
    (tmp_path / "built" / f"small/stays.{suffix}").touch()  # which would be imported in its place
    (tmp_path / "small" / "goes.py").unlink()
    assert build(tmp_path) == first - {"small/goes.py"}
    assert build(tmp_path) == first - {"small/goes.py"}


def pip(*arguments: str) -> None:
    """Run pip, without the network."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def packed(folder: Path) -> Path:
    """The wheel of these sources, made in a folder from what is published of them."""
    source = folder / "source"
    for path in files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path, follow_symlinks=False)
    command = [sys.executable, "-c", SDIST, str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    pip("wheel", "--no-build-isolation", "--no-deps", "-w", str(folder), str(sdist))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
@needs_compiler
def test_a_wheel_has_all_and_works_where_it_is_installed(tmp_path: Path) -> None:
    wheel = packed(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {
        (f"logstore/{path}" if path.parts[0] in MAPPED else str(path)) for path in modules(*ROOMS)
    }
    assert {name for name in names if name.endswith(".py")} == wanted | {"pyspark_logstore.py"}
    assert {name.partition(".")[0] for name in names if name.endswith(".so")} == COMPILED
    assert {"logstore/py.typed", "logstore/engine/lane/native.pyi"} <= names
    assert not [name for name in names if name.endswith((".c", ".pyx", ".pxi"))]
    home = tmp_path / "venv"
    venv.create(home)
    python = home / "bin" / "python"
    (inside,) = home.glob("lib/*/site-packages")
    # What it depends on, and nothing that says where the checkout is: that is not followed there.
    (inside / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for wish, codec in ("", "native"), ("native", "native"), ("pure", "pure"):
        done = subprocess.run(
            [str(python), "-c", TRIED, str(tmp_path / f"store-{wish}")],
            cwd=tmp_path, env={**plain, "LOGSTORE_CODEC": wish}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [codec, codec, str(inside / "logstore" / "__init__.py")]
    done = subprocess.run(
        [str(home / "bin" / "logstore"), "info", str(tmp_path / "store-")],
        cwd=tmp_path, env=plain, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "native codec, native core" in done.stdout, done.stderr
