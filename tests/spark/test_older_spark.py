"""Prevents an extra that takes a pyspark whose sessions cannot read a store.

`.ci/env.py older` installs one beside the newest, and says where in LOGSTORE_OLDER_PYSPARK.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scan.scanned_stores import make_store
from tests.spark.conftest import SCRATCH

ROOT = SCRATCH.parent.parent
COLUMNS = ["stream", "id", "ms", "seq", "ts", "fields", "id_key", "pairs"]


def test_an_older_spark_reads_and_writes_batches(tmp_path: Path) -> None:
    older = os.environ.get("LOGSTORE_OLDER_PYSPARK")
    if not older:
        pytest.skip("LOGSTORE_OLDER_PYSPARK is not set: `make test` installs an older pyspark")
    with make_store(tmp_path / "store") as store:
        store["x"].add_many(({"n": n, "v": f"{n}.5"} for n in range(100)), batch=10)
        token = store.moment()
        store["x"].trim(max_entries=100, approximate=False)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.spark.older_spark", str(tmp_path / "store"), token]
    path = os.pathsep.join([older, str(ROOT)])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    version, *told = done.stdout.splitlines()
    assert version.startswith("4.0.")
    assert told[:5] == [
        "100",
        "Row(sum(n)=4950, sum(v)=5000.0, count(ts)=100)",
        "Row(count(fields[n])=100, count(pairs)=100, (max(id_key) IS NULL)=False)",
        "Row(count(1)=100)",
        repr(COLUMNS),
    ]
    assert "needs pyspark 4.2 or later, and this is 4.0." in told[5], done.stderr[-6000:]
