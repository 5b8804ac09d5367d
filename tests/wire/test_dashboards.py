"""Prevents a dashboard and alarms that ask for numbers that no server tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import logstore
from logstore.telemetry.exposition import exposition
from logstore.tools.service import server_process
from logstore.wire.catalogue import service_of
from tests.house.repo import ROOT

DEPLOY = ROOT / "examples" / "deploy"
# What Prometheus adds to each target.
ITS_OWN = {"up"}


def queries(value: Any) -> Iterator[str]:
    """All queries of a dashboard: of its panels and of its variables."""
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in {"expr", "definition"})
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from queries(each)


@pytest.fixture
def told(tmp_path: Path) -> dict[str, set[str]]:
    """What a server tells: names of numbers, and their labels."""
    with logstore.open(tmp_path / "store") as store:
        jobs = store.stream("jobs")
        jobs.add({"a": "b"})
        jobs.group("g", start="0").read("anna")
        service = service_of(store)
        service.counts.errors["ERR"] = 1
        text = exposition(server_process.families(service)).decode()
    families = text_string_to_metric_families(text)
    return {sample.name: set(sample.labels) for of in families for sample in of.samples}


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_what_is_asked_for_is_told(file: str, told: dict[str, set[str]]) -> None:
    text = (DEPLOY / file).read_text()
    asked = "\n".join(queries(json.loads(text))) if file.endswith("json") else text
    names = set(re.findall(r"\b(?:logstore_\w+|up)\b", asked))
    assert len(names) > 6
    assert names - ITS_OWN - told.keys() == set()
    for name, selector in re.findall(r"\b(logstore_\w+)\{([^}]*)\}", asked):
        labels = set(re.findall(r"(\w+)=", selector)) - {"job", "instance"}
        assert labels <= told[name], name


def test_panels_of_the_dashboard_stand_beside_each_other() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24
