"""Which tests run for a change, and which are quick: two tables, `make test-for` and `test-quick`.

``python -m tests.rooms PATHS`` prints the test files to run for changed files; without paths it
takes what differs from the branch ``main``. They are: the changed test files; the test files that
import a changed module, also through other modules of tests, and also one that was deleted; and the
folders that ``TESTED_BY`` gives for the room of a changed module. A ``conftest.py`` is of all tests
beside and below it, that of all tests of the quick ones. ``--quick`` prints the files of ``QUICK``.
``tests/house/test_rooms.py`` checks both tables against what the tests import.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Folders of tests by package; what a package has no row for takes the row of the package above it.
TESTED_BY: dict[str, tuple[str, ...]] = {
    "logstore": ("store", "house"),
    "logstore.aio": ("waiting", "store"),
    "logstore.api": ("store", "groups"),
    "logstore.codec": ("codec",),
    "logstore.compaction": ("compaction", "retention"),
    "logstore.engine": ("engine", "store"),
    "logstore.engine.apply": ("recovery", "groups"),
    "logstore.engine.commit": ("engine", "store", "simulation"),
    "logstore.engine.dump": ("rdb",),
    "logstore.engine.features": ("schedules", "lifetimes", "retention", "settings", "store"),
    "logstore.engine.groups": ("groups", "waiting"),
    "logstore.engine.lane": ("engine", "collections", "simulation"),
    "logstore.engine.reading": ("engine",),
    "logstore.engine.maintenance": ("schedules", "compaction"),
    "logstore.engine.runtime": ("engine", "store"),
    "logstore.engine.shm": ("waiting", "engine"),
    "logstore.engine.snapshots": ("engine", "store"),
    "logstore.engine.streams": ("store", "groups"),
    "logstore.engine.txn": ("store", "groups"),
    "logstore.engine.waiting": ("waiting",),
    "logstore.features": ("settings", "schedules", "lifetimes", "store"),
    "logstore.index": ("index", "recovery"),
    "logstore.jobs": ("jobs",),
    "logstore.log": ("log", "recovery"),
    "logstore.mapped": ("mapped",),
    "logstore.rdb": ("rdb", "transfer"),
    "logstore.recovery": ("recovery", "corruption", "crash"),
    "logstore.recovery.salvage": ("corruption", "recovery"),
    "logstore.redis": ("wire",),
    "logstore.scan": ("scan",),
    "logstore.schema": ("schema",),
    "logstore.spark_io": ("spark", "scan"),
    "logstore.telemetry": ("telemetry",),
    "logstore.tools": ("tools",),
    "logstore.transfer": ("transfer",),
    "logstore.valkey": ("wire",),
    "logstore.web": ("web",),
    "logstore.where": ("schema",),
    "logstore.wire": ("wire",),
}
# Files outside the packages, and what tests them.
BESIDE: dict[str, tuple[str, ...]] = {
    "benchmarks": ("benchmarks",),
    "build_commands.py": ("house",),
    "setup.py": ("house",),
    "pyspark_logstore.py": ("spark/test_found_module.py",),
    "docs": ("house",),
    "examples": ("examples",),
    ".ci": ("house",),
    "pyproject.toml": ("house",),
    "Makefile": ("house",),
    "README.md": ("house",),
    "CONTRIBUTING.md": ("house",),
    "CHANGELOG.md": ("house",),
    "MANIFEST.in": ("house",),
}
# Committed bytes, and the module that reads them for the tests.
GOLDEN: dict[str, str] = {
    "tests/golden/codec": "tests.golden.codec.generate",
    "tests/golden/fuzz": "tests.fuzz.corpus",
    "tests/golden/store_v1": "tests.golden.store_v1.generate",
    "tests/golden/store_v2": "tests.golden.store_v2.generate",
    "tests/golden/store_v3": "tests.golden.store_v3.generate",
}
# What these tests reach through the public face alone, so that no import shows it.
BY_THE_FACE = {("logstore.engine.features", "settings")}
# `make test-quick`: below a minute on two idle cores, and something of every room. By
# `durations.json` the files take QUICK_MOST_S at most, in three processes beside each other.
QUICK_MOST_S = 110
QUICK: dict[str, tuple[str, ...]] = {
    "codec": (
        "test_golden",
        "test_checksums",
        "test_node",
        "test_resp",
        "test_pending_runs",
    ),
    "compaction": ("test_batches", "test_choice", "test_background", "test_segments"),
    "corruption": ("test_behind_damage", "test_lost_rows"),
    "engine": (
        "test_frames_applied_again",
        "test_published_tail",
        "test_metrics",
        "test_lane_nodes",
        "test_lane_transactions",
        "test_wake_words",
        "test_durability_promises",
    ),
    "groups": ("test_references", "test_handlers", "test_record_cache", "test_dead_letters"),
    "house": ("test_code", "test_faces", "test_packaging", "test_docstrings"),
    "index": ("test_keys", "test_txn"),
    "jobs": ("test_taskiq",),
    "lifetimes": ("test_lifetimes",),
    "log": ("test_edges", "test_files", "test_frames"),
    "mapped": ("test_guards",),
    "model": ("test_fields",),
    "rdb": ("test_files",),
    "recovery": (
        "test_backup",
        "test_checkpoint",
        "test_new_store",
        "test_open_files",
        "test_readonly",
        "test_rebuild_from_checkpoint",
        "test_join_open_store",
        "test_salvage_parts",
    ),
    "retention": ("test_retention",),
    "scan": ("test_plan", "test_scans", "test_source_options"),
    "schema": (
        "test_condition_text",
        "test_schema_text",
        "test_stream_schema",
    ),
    "schedules": ("test_schedules",),
    "settings": ("test_settings",),
    "store": (
        "test_add",
        "test_aio_face",
        "test_entries",
        "test_ids",
        "test_range",
        "test_streams",
        "test_transactions",
    ),
    "telemetry": ("test_gathering",),
    "tools": ("test_add", "test_inspect", "test_sql"),
    "transfer": ("test_limits",),
    "waiting": ("test_joining", "test_mailboxes", "test_hand_off_by_adds", "test_rejoining"),
    "web": ("test_web",),
    "wire": ("test_embedded", "test_multi", "test_requests"),
}
# They try the whole store, for minutes: run for a change of themselves, and by `make test`.
WHOLE = ("crash", "demo", "faults", "fuzz", "interleaving", "mutation", "power")


@functools.cache
def folders() -> dict[str, str]:
    """The folder of each package, as the build maps them."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found: dict[str, str] = {}
    for room, folder in given["package-dir"].items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / folder).parts
            found[".".join([room, *inside])] = str(init.parent.relative_to(ROOT))
    return dict(sorted(found.items()))


@functools.cache
def product() -> dict[str, Path]:
    """The modules of the product by their names."""
    return {
        package if path.stem == "__init__" else f"{package}.{path.stem}": path.relative_to(ROOT)
        for package, folder in folders().items()
        for path in (ROOT / folder).glob("*.py")
    }


@functools.cache
def harness() -> dict[str, Path]:
    """The modules below tests/ by their names."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py")]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    """What a file imports anywhere of the product and of the tests, also what is there no more."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in found if name.split(".")[0] in {"logstore", "tests"})


@functools.cache
def reached(path: Path) -> frozenset[str]:
    """The modules that a test file imports, itself or through other modules of tests."""
    found: set[str] = set()
    left = [path]
    while left:
        new = _imports(left.pop()) - found
        found |= new
        left += [harness()[name] for name in new if name in harness()]
    return frozenset(found)


def test_files() -> list[Path]:
    """Every test file, relative to the root."""
    return sorted(path for path in harness().values() if path.name.startswith("test_"))


def row_of(package: str) -> str:
    """The row of ``TESTED_BY`` that holds for a package."""
    while package not in TESTED_BY:
        package = package.rpartition(".")[0]
    return package


def _names_of(path: Path) -> set[str]:
    """The module that a file is, or was before it was deleted; empty for what is no module."""
    if path.suffix != ".py":
        return set()
    if path.parts[0] == "tests":
        return {".".join(path.with_suffix("").parts).removesuffix(".__init__")}
    return {
        package if path.stem == "__init__" else f"{package}.{path.stem}"
        for package, folder in folders().items()
        if path.parent == Path(folder)
    }


def _wanted_by(path: Path) -> tuple[str, ...]:
    """The files and folders below ``tests/`` that are run for a changed file, whatever it holds."""
    if path == Path("tests/conftest.py"):
        return tuple(str(test.relative_to("tests")) for test in quick())
    if path.parts[0] == "tests":
        if path.suffix == ".md" or path == Path("tests/durations.json"):
            return ("house",)
        if path.name == "conftest.py":
            return (str(path.relative_to("tests").parent),)
        if path.suffix != ".py" and len(path.parts) > 2:  # data of the tests of its folder
            return (path.parts[1],)
        is_listed = path.name.startswith("test_") and not (ROOT / path).exists()
        return ("house/test_rooms.py",) if is_listed else ()
    within = sorted(
        (package for package, folder in folders().items() if path.is_relative_to(folder)),
        key=lambda package: len(folders()[package]),
    )
    top = path.parts[0] if path.parts[0] in BESIDE else str(path)
    return TESTED_BY[row_of(within[-1])] if within else BESIDE.get(top, ())


def _tests_of(path: Path) -> Iterator[Path]:
    """The test files to run for one changed file, which may be deleted."""
    names = _names_of(path)
    names |= {reader for folder, reader in GOLDEN.items() if path.is_relative_to(folder)}
    wanted = _wanted_by(path)
    for test in test_files():
        is_wanted = any(test.is_relative_to(Path("tests", name)) for name in wanted)
        if test == path or names & reached(test) or is_wanted:
            yield test


def tests_for(paths: Iterable[Path]) -> list[Path]:
    """The test files to run for changed files, without the long ones that were not changed."""
    paths = [(ROOT / path).resolve().relative_to(ROOT) for path in paths]
    found = {test for path in paths for test in _tests_of(path)}
    changed = {path.parts[1] for path in paths if path.parts[0] == "tests" and len(path.parts) > 2}
    for folder, reader in GOLDEN.items():
        if any(path.is_relative_to(folder) for path in paths):
            changed.add(reader.split(".")[1])
    return sorted(test for test in found if test.parts[1] not in WHOLE or test.parts[1] in changed)


def changed_files() -> list[Path]:
    """The files that differ from the branch ``main``, committed or not."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    base = git("merge-base", "main", "HEAD")[0]
    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in names]


def quick() -> list[Path]:
    """The files of ``QUICK``."""
    return [
        Path("tests", folder, f"{name}.py") for folder, names in QUICK.items() for name in names
    ]


def main() -> None:
    """Print the test files to run, one a line."""
    if sys.argv[1:] == ["--quick"]:
        found = quick()
    else:
        found = tests_for([Path(name) for name in sys.argv[1:]] or changed_files())
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
