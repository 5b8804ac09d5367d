"""One Spark session for all tests of this folder; its files stay under build/."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.found_jar import found_jar
from tests.spark.jars import require_jar

ROOT = Path(__file__).resolve().parent.parent.parent
SCRATCH = ROOT / "build" / "spark"
READER = "spark.logstore.reader"  # the setting of a session for the reader
# How a streaming query ends if its Python worker takes more than ten seconds to start, as it may on
# busy cores. Spark has no setting for that: the query is begun again, as a user would do.
SLOW_WORKER = "Python worker failed to connect back"
# The first compiler alone (two fifths less processor time): most code runs a few times here.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f'"-Djava.io.tmpdir={SCRATCH}/tmp" "-Dderby.system.home={SCRATCH}/derby"'
)


READERS = ("jvm", "python")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that has the session runs under both readers; those of modules that choose
    themselves, or never read, once."""
    if "spark" in metafunc.fixturenames and not getattr(metafunc.module, "ONE_READER", ""):
        metafunc.parametrize("reader", READERS, indirect=True)


@pytest.fixture(autouse=True)
def reader(request: pytest.FixtureRequest) -> Iterator[str]:
    """The reader that reads where a test does not say it; empty: the session decides."""
    chosen: str = getattr(request, "param", "")
    if chosen == "jvm":
        require_jar()
    if chosen:  # the reader in the JVM hands on what it does not do, such as tables
        setting = "auto" if chosen == "jvm" else chosen
        request.getfixturevalue("spark").conf.set(READER, setting)
    yield chosen
    if chosen:
        request.getfixturevalue("spark").conf.unset(READER)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that tests share, with the jar if there is one."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
    made = session(found_jar())
    yield made
    made.stop()


def session(jars: str) -> Any:
    """A session on two cores, with the source registered, and these jars."""
    for name in ("local", "tmp", "warehouse", "derby"):
        (SCRATCH / name).mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    made = (
        SparkSession.builder.master("local[2]")
        .appName("logstore tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", jars)
        .config("spark.local.dir", str(SCRATCH / "local"))
        .config("spark.sql.warehouse.dir", str(SCRATCH / "warehouse"))
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    register(made)
    return made
