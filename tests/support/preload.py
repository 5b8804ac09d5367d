"""Libraries of tests in C, which are loaded before the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def below(library: Path) -> dict[str, str]:
    """The environment of a process with this library below it, behind those that are there."""
    loaded = [*os.environ.get("LD_PRELOAD", "").split(), str(library)]
    return {"LD_PRELOAD": " ".join(loaded)}


def built(folder: Path, source: Path) -> Path:
    """Compile one; the test is skipped where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler")
    made = folder / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made
