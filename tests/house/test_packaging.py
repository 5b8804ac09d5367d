"""Prevents a room that works in the checkout and is missing, or named otherwise, in the wheel."""

from __future__ import annotations

import importlib
import os

import pytest

from tests.house.repo import MAPPED, ROOMS, ROOT, modules, project


def test_every_package_is_listed() -> None:
    on_disk = {
        ".".join(
            path.parent.parts if path.parts[0] == "logstore" else ("logstore", *path.parent.parts)
        )
        for path in modules(*ROOMS)
    }
    assert set(project()["tool"]["setuptools"]["packages"]) == on_disk


def test_a_folder_inside_a_mapped_room_is_mapped_by_itself() -> None:
    nested = {path.parent for path in modules(*MAPPED) if len(path.parts) > 2}
    mapped = project()["tool"]["setuptools"]["package-dir"]
    assert {mapped.get("logstore." + ".".join(each.parts)) for each in nested} == set(
        map(str, nested)
    )


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
