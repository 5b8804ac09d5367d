"""What is broken, and the tests that are asked about it.

Invariant: a test file stands here only if its answer hangs on neither the clock nor other
processes: a busy machine must not count as a mutant that was noticed.
"""

from __future__ import annotations

from pathlib import Path

# The rooms of the table, each with the modules in it.
ROOMS = {
    "frames": ("logstore/log/*.py",),
    "features": ("logstore/features/*.py",),
    "apply": ("logstore/engine/apply/*.py", "logstore/engine/txn/nodes.py"),
    "recovery": ("recovery/*.py", "recovery/salvage/*.py"),
    "compaction": ("compaction/*.py",),
}
TESTS = (
    "tests/log",
    "tests/recovery",
    "tests/codec/test_batch.py",
    "tests/index",
    "tests/compaction",
    "tests/corruption",
    "tests/groups",
    "tests/lifetimes",
    "tests/retention",
    "tests/schedules",
    "tests/settings",
    "tests/store",
    "tests/engine/test_frames_applied_again.py",
    "tests/faults",
    "tests/tools/test_check.py",
    "tests/tools/test_maintenance.py",
    "tests/crash/test_torn.py",
    "tests/crash/test_failures.py",
    "tests/crash/states/test_found.py",
)
# They start processes, servers or Spark, wait for the clock, or take long without telling more. A
# test that does none of this has no place in them: it would never be asked.
LEFT_OUT = (
    "tests/compaction/test_kill.py",
    "tests/compaction/test_soak.py",
    "tests/schedules/test_kill.py",
    "tests/schedules/test_waiting.py",
    "tests/groups/test_machine.py",
    "tests/groups/test_worker.py",
    "tests/retention/test_background.py",
    "tests/store/test_peers.py",
)
# What tests draw by chance is the same for every mutant.
ENVIRONMENT = {"LOGSTORE_CRASH": "1", "LOGSTORE_SEED": "1"}


def modules(root: Path) -> dict[str, str]:
    """Every module that is broken, relative to the root, with its room."""
    found = {
        str(path.relative_to(root)): room
        for room, patterns in ROOMS.items()
        for pattern in patterns
        for path in root.glob(pattern)
        if path.name != "__init__.py"
    }
    return dict(sorted(found.items()))


def tests(root: Path) -> list[str]:
    """Every test file that is asked, relative to the root."""
    files: list[Path] = []
    for name in TESTS:
        path = root / name
        files += [path] if path.is_file() else path.rglob("test_*.py")
    names = (str(path.relative_to(root)) for path in files)
    return sorted(name for name in names if name not in LEFT_OUT)
