"""What every test shares: the settings of Hypothesis, marks by folder, and tables that are printed.

`make test` runs three processes of tests at a time, a file in one of them, the longest files first;
what is marked `alone` runs before all others, beside the type checkers: see ``tests/stages.py``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
# Upper limits of time that two busy cores would break, and mounts that all processes share.
ALONE = ("benchmarks", "power", "schedules/test_waiting.py", "waiting")
# The longest first, so that at the end no process waits for the other one.
LONG = (
    "crash/states", "spark", "crash/kills", "faults", "interleaving", "wire/test_machines.py",
    "groups", "model", "compaction", "fuzz", "demo", "tools/test_cli.py", "transfer",
)  # fmt: skip
TOLD = "told"
SPARK_S = 1800  # a test with a few jobs took ten minutes where twenty other processes computed
SMALL_DISK_BYTES = 12 << 20

# A failure prints what reproduces it; the examples found stay under build/.
set_hypothesis_home_dir(ROOT / "build" / "hypothesis")
settings.register_profile("logstore", deadline=None, print_blob=True)
settings.load_profile("logstore")


def _under(item: pytest.Item, names: tuple[str, ...]) -> int:
    """Which of the files and folders a test is in; their number if in none."""
    found = (place for place, name in enumerate(names) if item.path.is_relative_to(TESTS / name))
    return next(found, len(names))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark whole folders, so that no file can forget to."""
    for item in items:
        if _under(item, ("spark",)) == 0:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SPARK_S))
        if _under(item, ALONE) < len(ALONE):
            item.add_marker(pytest.mark.alone)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _under(item, LONG))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a test by its argument where the bytes are no text: packed bytes may hold a time.

    Each process collects the tests by itself, and a name that differs between them ends the run.
    """
    packed = isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable())
    return argname if packed else None


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Print a text at the end of the run, also if the test passed, whichever process runs it."""
    return lambda text: record_property(TOLD, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests told."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties:
                if name == TOLD:
                    terminalreporter.write_line(f"\n{text}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of ``SMALL_DISK_BYTES``, to be filled."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)
