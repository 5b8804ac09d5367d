"""Prevents filters, limits, orders and aggregates that Spark hands to the reader in the JVM from
giving other rows than the Python source gives, and from being handed over in vain.

A session of its own asks both readers, in a process, of the newest Spark and of the oldest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.spark.conftest import SCRATCH
from tests.spark.jars import require_jar

ROOT = SCRATCH.parent.parent
NEWEST, OLDEST = "newest", "oldest"


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def answers(request: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the session answers."""
    require_jar()
    paths = [str(ROOT)]
    environment = {**os.environ}
    if request.param == OLDEST:
        older = os.environ.get("LOGSTORE_OLDER_PYSPARK")
        if not older:
            pytest.skip("LOGSTORE_OLDER_PYSPARK is not set: `make test` installs an older pyspark")
        paths.insert(0, older)
        environment.pop("SPARK_HOME", None)
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    folder = tmp_path_factory.mktemp("pushdown")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.pushdown_driver", str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_filters_give_the_rows_that_they_give_of_all(answers: dict[str, Any]) -> None:
    assert answers["filters"] == {"all": [], "some": [], "dropped": []}


def test_aggregates_are_those_of_all_rows(answers: dict[str, Any]) -> None:
    assert answers["aggregates"]["wrong"] == []


def test_aggregates_need_no_task_where_the_plan_knows_them(answers: dict[str, Any]) -> None:
    """Not where a time may be null, nor where a malformed entry is no row."""
    least_and_most = "count(*), min(ms), max(ms), min(ts), max(ts), min(id_key), max(id_key)"
    both = ["count(*)"], ["stream, count(*)"]
    assert answers["aggregates"]["without_tasks"] == [
        *both,
        ["count(*)", "laps,gone,single"],
        [least_and_most, "laps,gone,single"],
        ["stream, count(*)", "laps,gone,single"],
        ["stream, max(ts), min(id_key)", "laps,gone,single"],
    ]


def test_first_rows_and_limits_are_those_of_all_rows(answers: dict[str, Any]) -> None:
    assert answers["tops"] == []


def test_metrics_tell_that_nodes_are_left_out(answers: dict[str, Any]) -> None:
    """Of 60 nodes with four entries each; of 10 large ones."""
    found = answers["metrics"]
    assert {name: each["nodesRead"] for name, each in found.items()} == {
        "all": 60,
        "range": 3,
        "field": 3,
        "either": 14,
        "limit": 1,
        "top": 1,
        "last": 2,
        "none": 0,
        "apart": 2,
    }
    assert found["apart"]["bytesRead"] < 3 * 40960  # and not the nodes between both
    assert found["all"]["nodesSkipped"] == 0
    assert found["all"]["rowsRead"] == 240
    assert found["range"]["nodesSkipped"] == 57
    assert found["range"]["rowsRead"] == 9
    assert found["field"]["nodesSkipped"] == 57
    assert found["none"]["nodesSkipped"] == 60


def test_a_plan_says_what_was_pushed_down(answers: dict[str, Any]) -> None:
    filtered, limited, first = answers["plans"]
    assert "pushed filters: [ms IS NOT NULL, ms > 5]" in filtered
    assert "filters asked of nodes: [n IS NOT NULL, n > 7]" in filtered
    condition = filtered.partition("Filter (")[2].partition("\n")[0]
    assert "n#" in condition
    assert "ms#" not in condition
    assert "pushed limit: 2" in limited
    assert "pushed top 1 by [id_key ASC" in first


def test_a_small_part_of_a_load_is_sent_to_a_join(answers: dict[str, Any]) -> None:
    assert "BroadcastHashJoin" in answers["joins"]
    assert "BuildRight" in answers["joins"]


def test_all_queries_of_a_load_read_one_moment(answers: dict[str, Any]) -> None:
    assert answers["moments"] == [10, 20, 10, 20, 19, 11]


@pytest.mark.parametrize("kind", ["as of", "shipped", "shipped and not", "pattern", "table"])
def test_loads_of_all_kinds_push_down(answers: dict[str, Any], kind: str) -> None:
    """And give the rows that Python gives. Three of six queries are answered by the plan."""
    assert answers["load_kinds"][kind] == {"wrong": [], "without_tasks": 3}


def test_rows_are_not_sorted_that_come_in_order(answers: dict[str, Any]) -> None:
    """Within tasks. Before a window and an order of all Spark exchanges rows, also of one task."""
    assert answers["orders"] == {
        "not": [
            "two stores",
            "some of the streams",
            "some of the IDs",
            "one stream of a load",
        ],
        "sorted": [
            "streams as they were named",
            "a name that is no text",
            "a window",
            "a window over parts",
            "all by ID",
            "all by time",
            "by a time that may be null",
            "backwards",
            "two streams by ID",
        ],
        "wrong": [],
    }


def test_a_query_may_ask_where_entries_lie(answers: dict[str, Any]) -> None:
    """The last node is open: the plan has a copy, and no place."""
    found = answers["places"]
    refused, streamed = found.pop("python"), found.pop("streamed")
    assert found == {
        "equal": True,
        "nowhere": 2,
        "star": ["id", "n"],
        "filtered": 4,
        "hidden": [["x", 1], ["x", None]],
        "not asked": False,
        "asked": True,
    }
    assert "column '_segment' is one of the reader in the JVM" in refused
    assert "option 'reader' is python" in refused
    assert streamed == [22, 20, 0]
