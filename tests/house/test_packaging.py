"""Prevents a room that works in the checkout and is missing, or named otherwise, in the wheel."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from tests.house.repo import MAPPED, ROOMS, ROOT, modules, project

FOUND = """
import json, setuptools
from distutils.core import run_setup
build = run_setup("setup.py", stop_after="config").get_command_obj("build_py")
build.package_dir = build.distribution.package_dir
print(json.dumps({name: build.get_package_dir(name) for name in build.distribution.packages}))
"""


def test_every_package_is_built_from_its_folder() -> None:
    """Also one inside a mapped room."""
    done = subprocess.run([sys.executable, "-c", FOUND], cwd=ROOT, capture_output=True, check=True)
    on_disk = {path.parent for path in modules(*ROOMS)}
    assert json.loads(done.stdout) == {
        ".".join(path.parts if path.parts[0] == "logstore" else ("logstore", *path.parts)): str(
            path
        )
        for path in on_disk
    }


def test_every_package_has_an_init() -> None:
    folders = {path.parent for path in modules(*ROOMS)}
    assert [str(one) for one in sorted(folders) if not (ROOT / one / "__init__.py").exists()] == []


@pytest.mark.parametrize("room", MAPPED)
def test_the_map_and_the_link_agree(room: str) -> None:
    assert project()["tool"]["setuptools"]["package-dir"][f"logstore.{room}"] == room
    assert os.readlink(ROOT / "logstore" / room) == f"../{room}"


@pytest.mark.parametrize("room", ["logstore", *(f"logstore.{room}" for room in MAPPED)])
def test_a_room_is_imported_from_the_checkout(room: str) -> None:
    where = importlib.import_module(room).__file__
    assert where is not None
    assert os.path.realpath(where) == str(ROOT / room.rpartition(".")[2] / "__init__.py")


def test_the_compiled_codec_is_there() -> None:
    if not os.environ.get("LOGSTORE_REQUIRE_NATIVE"):
        pytest.skip("LOGSTORE_REQUIRE_NATIVE is not set; continuous integration sets it")
    assert importlib.import_module("logstore.codec.native")
