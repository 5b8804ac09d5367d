"""Prevents numbers for Prometheus that its own parser does not read."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.tools.commands import invoke, objects, ok


def test_the_numbers_of_a_store(store: Path) -> None:
    families = list(text_string_to_metric_families(ok("metrics", store)))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["logstore_streams",] == 2
    assert found["logstore_stream_entries", "race"] == 4
    assert not any(name[0].startswith("logstore_process") for name in found)
    rows = objects(ok("metrics", store, "--json", "--series", 1, "--stream", "r*"))
    assert {"name": "logstore_stream_entries", "stream": "race", "value": 4} in rows
    assert [row["stream"] for row in rows if row["name"] == "logstore_stream_entries"] == ["race"]
    assert {row["name"] for row in rows} >= {name.removesuffix("_total") for name, *_ in found}


def test_no_store_is_no_store(tmp_path: Path) -> None:
    done = invoke("metrics", tmp_path / "absent")
    assert done.exit_code == 1
    assert not (tmp_path / "absent").exists()
