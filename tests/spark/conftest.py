"""One Spark session for all tests of this folder; its files stay under build/."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRATCH = ROOT / "build" / "spark"
# How a streaming query ends if its Python worker takes more than ten seconds to start, as it may on
# busy cores. Spark has no setting for that: the query is begun again, as a user would do.
SLOW_WORKER = "Python worker failed to connect back"
# The first compiler alone (two fifths less processor time): most code runs a few times here.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f'"-Djava.io.tmpdir={SCRATCH}/tmp" "-Dderby.system.home={SCRATCH}/derby"'
)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores, with the source registered."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
    for name in ("local", "tmp", "warehouse", "derby"):
        (SCRATCH / name).mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    session = (
        SparkSession.builder.master("local[2]")
        .appName("logstore tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(SCRATCH / "local"))
        .config("spark.sql.warehouse.dir", str(SCRATCH / "warehouse"))
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()
