"""The packages of the build, as the folders are; pyproject.toml says all else.

Each of the rooms that it maps to a folder of the top level is found there, not through the links
``logstore/NAME``: a source distribution has none.
"""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]


def packages() -> list[str]:
    """All packages, by their names when they are installed."""
    found = set(ROOMS)
    for room, folder in ROOMS.items():
        found |= {f"{room}.{name}" for name in find_packages(str(ROOT / folder))}
    return sorted(found)


setup(packages=packages())
