"""The packages of the build, as the folders are; pyproject.toml says all else.

Each of the rooms that it maps to a folder of the top level is found there, not through the links
``logstore/NAME``: a source distribution has none.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

if sys.platform == "win32":  # nothing that a build would make there could be imported
    sys.exit(
        "logstore runs on Linux and macOS, and not on Windows; under WSL 2 it does. "
        "docs/compatibility.md says what is missing"
    )
os.umask(0o022)  # files in a wheel have the rights that they were made with
ROOT = Path(__file__).resolve().parent
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]


def packages() -> list[str]:
    """All packages, by their names when they are installed."""
    found = set(ROOMS)
    for room, folder in ROOMS.items():
        found |= {f"{room}.{name}" for name in find_packages(str(ROOT / folder))}
    return sorted(found)


setup(packages=packages())
