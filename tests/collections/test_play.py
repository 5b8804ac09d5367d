"""Prevents that a collection in the midst of a call mixes up fields, or ends or stops the process.

Processes of ``play.py``, some with an allocator that overwrites what is freed and looks at the ends
of what is not. LOGSTORE_COLLECTIONS_SEED repeats one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import seeds

ROOT = Path(__file__).resolve().parents[2]
SEED = seeds.seed()
STEPS = 600 * max(1, int(os.environ.get("LOGSTORE_TORTURE", "1")))


@pytest.mark.parametrize("allocator", ["default", "debug"])
@pytest.mark.parametrize("intruder", ["finaliser", "thread", "both"])
def test_a_store_whose_calls_are_broken_in_upon(
    tmp_path: Path, intruder: str, allocator: str, tell: Callable[[str], None]
) -> None:
    """A call in a collection is refused or works, and leaves the call around it as it was."""
    print(f"seed {SEED}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.collections.play", str(tmp_path / "store"), str(SEED),
         str(STEPS), intruder],
        cwd=ROOT, env={**os.environ, "PYTHONMALLOC": allocator}, capture_output=True, text=True,
        timeout=180 * (STEPS // 600), check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {SEED}: {done.stdout}{done.stderr}"
    tell(f"{intruder}, {allocator}, seed {SEED}: {done.stdout.strip()}")
