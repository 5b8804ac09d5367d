"""Prevents executors that need more than the files of a store, such as LMDB and the index.

The clusters are of real processes, on loopback; ``make test`` has no second machine. A mount that
all of them share is here the directory that they see under one name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanned_stores import make_store
from tests.spark import clusters
from tests.spark.clustered_driver import BARE, EXECUTORS, SCHEMA
from tests.spark.conftest import SCRATCH
from tests.spark.found_jar import found_jar
from tests.spark.jars import require_jar

ROOT = Path(__file__).resolve().parent.parent.parent
STREAMS, ROWS = ("race:france", "race:italy", "race:spain"), 1000


@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_executors_need_files_only(spark: Any, tmp_path: Path, kind: str, reader: str) -> None:
    """What a cluster reads and writes is what a local session does, and the store itself."""
    path, target, aside = tmp_path / "store", tmp_path / "target", tmp_path / "aside"
    aside.mkdir()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with make_store(path, encoding="utf-8") as store:
        for name in STREAMS:
            store[name].add_many(({"n": n, "rider": f"r{n % 7}"} for n in range(ROWS)), batch=90)
        store["race:italy"].delete(next(store["race:italy"].range()).id)
        store["other"].add({"n": 1})
        want = {name: [(e.id, dict(e.fields)) for e in store[name].range()] for name in STREAMS}
    with make_store(target) as store:  # executors write by it, without the index
        store.stream("copy of race:spain").configure(schema="n long")
    with ExitStack() as running:
        master = f"local-cluster[{EXECUTORS},1,1024]"
        if kind == "standalone":
            master = running.enter_context(clusters.standalone(aside, EXECUTORS))
        driver = [sys.executable, "-m", "tests.spark.clustered_driver", master]
        jar = found_jar() if reader == "jvm" else ""
        done = subprocess.run(
            [*driver, str(path), str(target), str(aside), jar],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((aside / "told.json").read_text())
    assert ("read by the JVM" in told["plan"]) is (reader == "jvm")
    load = spark.read.format("logstore").schema(SCHEMA)
    local = load.options(path=str(path), streams="race:*").load().collect()
    assert told["rows"] == sorted(list(row) for row in local)
    assert told["count"] == len(local) == sum(map(len, want.values()))
    assert told["batches"] > 1
    executors = {executor for executor, _ in told["readers"]}
    assert len(executors) == EXECUTORS
    assert not {os.getpid(), None} & executors
    assert [has_lmdb for _, has_lmdb in told["readers"]] == [False] * EXECUTORS
    with make_store(target, encoding="utf-8") as store:
        for name, entries in want.items():
            assert [(e.id, dict(e.fields)) for e in store[name].range()] == entries
            copied = [(e.id, str(e.fields["n"])) for e in store[f"copy of {name}"].range()]
            assert copied == [(id, fields["n"]) for id, fields in entries]
        assert "other" not in store
        assert store["copy of race:spain"].last["n"] == ROWS - 1


def test_executors_that_read_by_the_jvm_need_no_python(tmp_path: Path) -> None:
    """Nor need the driver register anything; the planner alone has logstore."""
    jar, path, aside = require_jar(), tmp_path / "store", tmp_path / "aside"
    aside.mkdir()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with make_store(path, encoding="utf-8") as store:
        for name in STREAMS:
            store[name].add_many(({"n": n} for n in range(ROWS)), batch=90)
        want = [
            {"stream": name, "id": str(entry.id), "fields": dict(entry.fields)}
            for name in STREAMS
            for entry in sorted(store[name].range(), key=lambda entry: str(entry.id))
        ]
    driver = [sys.executable, "-m", "tests.spark.clustered_driver", BARE, str(path), str(aside)]
    done = subprocess.run(
        [*driver, jar, sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=900,
        check=False, env={**os.environ, "PYSPARK_PYTHON": "/nowhere/python"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((aside / "told.json").read_text())
    assert [json.loads(row) for row in told["rows"]] == want
    assert len(told["executors"]) == EXECUTORS
