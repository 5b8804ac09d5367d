"""Modules that are loaded where they are first needed, loaded before."""

from __future__ import annotations

import importlib
import pkgutil

OPENED = ("api", "engine", "index", "log", "recovery", "scan")  # what an open store is made of


def import_all() -> None:
    """Have in memory what a process would import when it needs it."""
    for folder in OPENED:
        package = importlib.import_module(f"logstore.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
