"""The harness of the benchmarks works: a tiny run, both forms of output. No time is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import headline, maintenance, together
from benchmarks.__main__ import main


def test_a_tiny_run_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calls", "--tiny", "--folder", str(tmp_path)]) == 0
    assert "append one row" in capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "the stores were left behind"


def test_a_tiny_run_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "--tiny", "--json", "--folder", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {"add_many of rows drawn at random", "VmHWM of a load with IDs"} < {
        result["name"] for result in results
    }
    for result in results:
        assert len(result["ours"]["values"]) == len(result["peer"]["values"]) > 0
        assert result["met"] in (True, False)


def test_a_tiny_run_of_plans_and_transfer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["planning", "transfer", "--tiny", "--json", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "failed" not in told.err
    names = {result["name"] for result in json.loads(told.out)["results"]}
    assert {"plan of 1,000 streams", "export to JSON lines", "import of Parquet"} < names


def test_a_tiny_run_counts_what_a_full_scan_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["where", "--tiny", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "failed" not in told.err
    assert told.out.count("range(where=)") == 3


def test_a_tiny_run_of_imports_and_adds_with_schemas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["typed", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "failed" not in told.err
    names = {result["name"] for result in json.loads(told.out)["results"]}
    assert {"import of CSV, types found", "add_many with a schema"} < names


def test_a_tiny_run_tells_of_tails_sizes_and_indexes_that_were_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["tails", "sizes", "opening"]
    assert main([*names, "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "failed" not in told.err
    found = {each["name"] for each in json.loads(told.out)["results"]}
    assert {"add, p99.9 of 200", "add, values of 16 bytes", "read in order, values of 256 bytes",
            "an index that is lost with its process, of 500 single adds"} < found  # fmt: skip
    assert not list(tmp_path.iterdir()), "the stores were left behind"


def test_a_tiny_run_of_scans_has_parquet_with_and_without_dictionaries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reading", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    scans = [each for each in results if each["name"].startswith("scan")]
    assert len(scans) == 3
    for each in scans:
        labels = {side["label"] for side in (each["peer"], *each["others"])}
        assert {"Parquet, default", "Parquet, plain"} <= labels
        assert each["note"].startswith(headline.SIZES)


def test_a_tiny_run_of_workloads_measures_each_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A work that no side but ours does would be compared with nothing."""
    assert main(["works", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]) == 0
    results = {each["name"]: each for each in json.loads(capsys.readouterr().out)["results"]}
    assert {"delete, at random", "close, after all of these"} < set(results)
    for result in results.values():
        assert result["ours"]["label"] == "logstore"
        assert result["peer"]["label"] == "SQLite"
    assert not list(tmp_path.iterdir()), "the stores were left behind"


def test_a_tiny_run_beside_maintenance_tells_of_each_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Adds that were not under way while the work was would say nothing of it."""
    some = ("compact", "copy", "checkpoint", "backup")
    kept = tuple(case for case in maintenance.CASES if case.work in some)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintenance, "CASES", kept)
        arguments = ["maintenance", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]
        assert main(arguments) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert len(results) == 2 * len(kept)
    assert not [result["name"] for result in results if result["note"].startswith("0 adds")]
    peers = {side["label"] for result in results for side in result["others"]}
    assert peers == {"VACUUM of SQLite", "wal_checkpoint of SQLite"}
    assert not list(tmp_path.iterdir()), "the stores were left behind"


def test_a_tiny_run_of_many_adds_with_each_crew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(together, "THREADS", (2,))
        patched.setattr(together, "PROCESSES", (2,))
        arguments = ["together", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]
        assert main(arguments) == 0
    results = {each["name"]: each for each in json.loads(capsys.readouterr().out)["results"]}
    assert len(results) == 5
    assert {"2 threads under everysec", "threads under always"} < set(results)
    for result in results.values():
        assert [side["label"].partition(",")[0] for side in result["others"]] == ["SQLite"] * 2


def test_a_tiny_run_of_the_loops_that_do_the_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["floors", "--tiny", "--rounds", "1", "--json", "--folder", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert len(results) == 5
    assert all(result["ours"]["mean"] > 0 for result in results)


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "there are workloads" in capsys.readouterr().err
