"""Prevents a page of the manual that tells less, or otherwise, than the commands do."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from logstore.tools.commands import COMMANDS
from tests.house.repo import project
from tests.tools import manual


def test_the_page_is_that_of_the_commands() -> None:
    assert manual.PAGE.read_text() == manual.text(), "make it anew: make manual"


def test_the_page_has_every_command() -> None:
    page = manual.PAGE.read_text()
    for name in COMMANDS:
        assert f".SS logstore {name}".replace("-", r"\-") in page


def test_the_page_is_installed_where_man_looks() -> None:
    files = project()["tool"]["setuptools"]["data-files"]
    assert files == {"share/man/man1": ["docs/logstore.1"]}


def test_man_shows_it_without_a_complaint() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(manual.PAGE)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    assert "Print the script that makes SHELL complete" in " ".join(shown.stdout.split())
