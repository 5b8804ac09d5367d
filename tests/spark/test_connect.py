"""Prevents a source that works in the driver's own session only, and not over Spark Connect.

The server runs in the Java process of the other tests' session; the client is a process that has
neither, as on a machine without Java.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanned_stores import make_store

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = ("google.rpc", "grpc", "grpc_status", "zstandard")


def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


@pytest.fixture
def url(spark: Any) -> str:
    """A server of Spark Connect."""
    missing = [each for each in NEEDED if not has(each)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: the set `test` of .ci/env.py installs them")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service = spark.sparkContext._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context)
    return f"sc://127.0.0.1:{port}"


def test_a_session_of_connect_reads_and_writes(url: str, tmp_path: Path) -> None:
    with make_store(tmp_path / "store") as store:
        store["x"].add_many((((n, 0), {"n": n}) for n in range(1, 101)), batch=10)
    command = [sys.executable, "-m", "tests.spark.connect_client", url, str(tmp_path / "store")]
    environment = {**os.environ, "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        "100",
        "Row(count(1)=10, max(ms)=10)",
        "True 100",
        "True",
    ]
