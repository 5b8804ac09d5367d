"""Prevents a room whose change runs no tests, and a quick run that passes a room over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import draw, rooms

ROOT = rooms.ROOT
FOLDERS = {path.parts[1] for path in rooms.test_files()}
# What is tried as a whole, and what tests the tests.
GENERAL = {*rooms.WHOLE, "benchmarks", "examples", "house", "model", "peers"}


def modules_of(package: str) -> set[str]:
    """The modules that a row of the table is about."""
    return {
        name
        for name, path in rooms.product().items()
        if rooms.row_of(name if path.stem == "__init__" else name.rpartition(".")[0]) == package
    }


def reaching(package: str) -> set[Path]:
    """The test files that import a module of a row, themselves or through others of tests."""
    return {test for test in rooms.test_files() if modules_of(package) & rooms.reached(test)}


def test_every_row_is_about_a_package_and_names_folders() -> None:
    assert set(rooms.TESTED_BY) <= set(rooms.folders())
    assert {name for row in rooms.TESTED_BY.values() for name in row} <= FOLDERS
    for name, wanted in rooms.BESIDE.items():
        assert (ROOT / name).exists()
        assert all((ROOT / "tests" / one).exists() for one in wanted)


def test_every_package_has_a_row() -> None:
    """Those of the engine too: a change of one floor is not a change of all."""
    rows = {package.split(".")[1] for package in rooms.TESTED_BY if "." in package}
    assert {package.split(".")[1] for package in rooms.folders() if "." in package} == rows
    floors = {".".join(name.split(".")[:3]) for name in rooms.folders() if ".engine." in name}
    assert floors <= set(rooms.TESTED_BY)


@pytest.mark.parametrize("package", rooms.TESTED_BY)
def test_tests_of_a_row_import_its_package(package: str) -> None:
    found = {test.parts[1] for test in reaching(package)}
    shown = {(package, name) for name in found} | rooms.BY_THE_FACE
    assert {(package, name) for name in rooms.TESTED_BY[package]} <= shown


def test_every_folder_of_tests_is_run_for_some_room() -> None:
    assert GENERAL | {name for row in rooms.TESTED_BY.values() for name in row} == FOLDERS


@pytest.mark.parametrize("package", rooms.TESTED_BY)
def test_every_room_has_a_quick_test(package: str) -> None:
    quick = set(rooms.quick())
    assert all((ROOT / path).is_file() for path in quick)
    assert {test for test in quick if test.parts[1] in rooms.TESTED_BY[package]}
    assert quick & reaching(package)


def test_quick_tests_take_below_a_minute() -> None:
    """By the table of durations; three processes take it in turn on two cores."""
    table = {**draw.load("alone"), **draw.load("beside")}
    files = [path.relative_to("tests").as_posix() for path in rooms.quick()]
    costs = [table.get(file, draw.UNKNOWN) for file in files]
    assert sum(each.of(each.tests) for each in costs) <= rooms.QUICK_MOST_S


def test_nothing_quick_is_long_or_needs_spark() -> None:
    assert not {"fuzz", "interleaving", "power", "spark"} & set(rooms.QUICK)


def test_a_change_runs_what_imports_it() -> None:
    found = rooms.tests_for([Path("tests/model/groups.py")])
    assert Path("tests/model/test_model.py") in found
    assert Path("tests/crash/states/test_states.py") not in found  # long, and not changed
    assert Path("tests/crash/states/test_states.py") in rooms.tests_for(
        [Path("tests/crash/states/store_content.py")]
    )
    assert rooms.tests_for([Path("tests/groups/test_face.py")]) == [
        Path("tests/groups/test_face.py")
    ]
    assert Path("tests/house/test_docs.py") in rooms.tests_for([Path("docs/format.md")])
    assert {test.parts[1] for test in rooms.tests_for([Path("spark_io/source.py")])} >= {"spark"}
    assert Path("tests/log/test_frames.py") in rooms.tests_for([Path("logstore/log/frame.py")])


def test_no_test_imports_another() -> None:
    """What two need stands in a module of their folder, in tests/support or in tests/model."""
    for path in rooms.test_files():
        found = {name for name in rooms._imports(path) if ".test_" in name}
        assert not {name for name in found if name.startswith("tests.")}, path


def folders_of(*paths: str) -> set[str]:
    """The folders of the tests that are run for changed files."""
    return {test.parts[1] for test in rooms.tests_for(map(Path, paths))}


def test_a_deleted_module_runs_what_still_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents that who deletes or moves a module hears of nothing, or of a file that is gone."""
    gone = Path("tests/store/test_gone.py")
    imports = {
        Path("tests/log/test_frames.py"): {"logstore.log.gone"},
        Path("tests/index/test_keys.py"): {"logstore.index.gone.key_of"},
    }
    monkeypatch.setattr(rooms, "reached", lambda path: frozenset(imports.get(path, ())))
    found = rooms.tests_for([Path("logstore/codec/gone.py")])
    assert {test.parts[1] for test in found} == {"codec"}
    assert Path("tests/log/test_frames.py") in rooms.tests_for([Path("logstore/log/gone.py")])
    assert rooms._names_of(Path("index/gone.py")) == {"logstore.index.gone"}
    assert rooms.tests_for([gone]) == [Path("tests/house/test_rooms.py")]


def test_a_module_that_is_gone_is_still_seen_in_what_imports_it(tmp_path: Path) -> None:
    """Prevents that only imports of modules that exist are looked at."""
    path = tmp_path / "test_it.py"
    path.write_text("from tests.support import gone\nfrom logstore.log.gone import frame\n")
    assert {"tests.support.gone", "logstore.log.gone"} <= rooms.reached(path)


def test_a_conftest_runs_the_tests_that_it_is_for() -> None:
    """Prevents a change of shared fixtures that runs nothing: nobody imports a conftest."""
    assert folders_of("tests/wire/conftest.py") == {"wire"}
    wire = {test for test in rooms.test_files() if test.parts[1] == "wire"}
    assert set(rooms.tests_for([Path("tests/wire/conftest.py")])) == wire
    assert set(rooms.tests_for([Path("tests/conftest.py")])) >= set(rooms.quick())
    for name, path in rooms.harness().items():
        if name.endswith(".conftest"):
            assert rooms.tests_for([path]), path


def test_golden_bytes_run_what_reads_them() -> None:
    """Prevents committed bytes that change unread; and that new ones have no reader."""
    golden = ROOT / "tests" / "golden"
    there = {str(path.relative_to(ROOT)) for path in golden.iterdir() if path.name[0] not in "_."}
    assert there == set(rooms.GOLDEN)
    for folder, reader in rooms.GOLDEN.items():
        name = folder.rpartition("/")[2]
        source = rooms.harness()[reader]
        assert source.is_relative_to(folder) or f'"golden" / "{name}"' in source.read_text()
    assert "codec" in folders_of("tests/golden/codec/vectors.json")
    assert "fuzz" in folders_of("tests/golden/fuzz/lines.hex")
    assert "recovery" in folders_of("tests/golden/store_v1/store/STORE")


def test_a_page_or_data_of_the_tests_runs_what_looks_at_it() -> None:
    """Prevents that tests/README.md, or a file that tests read, is changed unseen."""
    assert folders_of("tests/README.md") == {"house"}
    assert folders_of("tests/store/odd_arguments.txt") == {"store"}
    assert folders_of("tests/wire/node/clients.js") == {"wire"}
