"""Prevents a source that works in the driver's own session only, and not over Spark Connect.

The server runs in the Java process of the other tests' session, or one of its own; the client is a
process that has neither, as on a machine without Java.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanned_stores import make_store
from tests.spark.connect_client import ADDED
from tests.spark.connect_server import serve
from tests.spark.found_jar import found_jar
from tests.spark.jars import require_jar

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = ("google.rpc", "grpc", "grpc_status", "zstandard")


def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def needs_extras() -> None:
    """Skip a test where a client of Connect cannot be."""
    missing = [each for each in NEEDED if not has(each)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: the set `test` of .ci/env.py installs them")


@pytest.fixture(scope="module")
def url(spark: Any) -> str:
    """A server of Spark Connect in the session of the other tests."""
    needs_extras()
    return serve(spark)


def told(url: str, folder: Path, who: str) -> list[str]:
    """What a client says of a store."""
    with make_store(folder / "store") as store:
        store["x"].add_many((((n, 0), {"n": n}) for n in range(1, 101)), batch=10)
    command = [sys.executable, "-m", "tests.spark.connect_client", url, str(folder / "store"), who]
    environment = {**os.environ, "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_session_of_connect_reads_and_writes(url: str, tmp_path: Path, reader: str) -> None:
    assert told(url, tmp_path, reader) == [
        "pyspark.sql.connect.session",
        f"{reader} {'jvm' if found_jar() else 'python'}",
        "100",
        "Row(count(1)=10, max(ms)=10)",
        "True 100",
        "True",
    ]


def test_a_jar_that_a_client_sends_holds_for_its_session(tmp_path: Path) -> None:
    """In each thread of it, and in no other session: the server has no jar."""
    needs_extras()
    require_jar()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.connect_server"], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            found = told(server.stdout.readline().strip(), tmp_path, ADDED)
        finally:
            server.stdin.close()
    assert found == ["jvm 100 100", "jvm 100 100", "python 100 100"]
