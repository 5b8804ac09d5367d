"""Prevents that a process dies, or reads wrongly, because what its threads look at is replaced.

Run for long by `make torture`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import figures

ERASURES = 30 * figures.times()


def test_threads_go_on_while_another_process_erases(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.engine.erasing"]
    done = subprocess.run(
        [*command, str(tmp_path / "s"), str(ERASURES)], capture_output=True, text=True, check=False
    )
    print(done.stdout, f"erasures={ERASURES}", sep="")
    assert done.returncode == 0, done.stderr[-4000:]
    counts = dict(each.split("=") for each in done.stdout.split())
    figures.record("threads", erasures=ERASURES, reads=int(counts["len"]) + int(counts["range"]))
