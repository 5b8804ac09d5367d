"""A simulation as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def played(folder: Path, seed: str, histories: int, *more: str) -> tuple[int, str]:
    """Exit code of ``play``, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.play", str(folder), seed, str(histories), *more],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr + done.stdout
