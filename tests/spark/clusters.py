"""Spark clusters of real processes on loopback, whose executors find no LMDB: they have files only.

Two kinds: ``local-cluster[...]``, whose workers live in the driver's Java process, and a standalone
master with workers, which are started here as ``sbin/start-master.sh`` starts them elsewhere. A
session of either kind needs a driver process of its own, beside the session that tests share.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.spark.conftest import JAVA, SCRATCH

OF_EXECUTORS = "SPARK_EXECUTOR_DIRS"  # set by a worker of a cluster for its executors
WAIT_S = 600  # a hang; busy machines take minutes
LOGGING = """rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %m%n
"""


def session(master: str, aside: Path, *, registers: bool = True, **conf: str) -> Any:
    """The session of a driver on that master, the source registered, all its files aside."""
    os.environ["SPARK_HOME"] = str(home_of_links(aside))
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    builder = (
        SparkSession.builder.master(master)
        .appName("logstore on a cluster")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", JAVA)
        .config("spark.executorEnv.PYTHONPATH", str(without_lmdb(aside)))
        .config("spark.local.dir", str(SCRATCH / "local"))
        .config("spark.sql.warehouse.dir", str(SCRATCH / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in conf.items():
        builder = builder.config(f"spark.{name.replace('_', '.')}", value)
    made = builder.getOrCreate()
    if registers:
        register(made)
    return made


def without_lmdb(aside: Path) -> Path:
    """A folder for the path of Spark's Python: with it executors find no LMDB, only planners do."""
    folder = aside / "without"
    folder.mkdir()
    (folder / "lmdb.py").write_text(
        f"""
import os, sys
if {OF_EXECUTORS!r} in os.environ:
    raise ImportError("there is no LMDB on this machine")
sys.path.remove({str(folder)!r})
del sys.modules["lmdb"]
import lmdb
"""
    )
    return folder


def home_of_links(aside: Path) -> Path:
    """A SPARK_HOME where a cluster may write its folder ``work``."""
    import pyspark

    home = aside / "home"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    return home


@contextmanager
def standalone(aside: Path, workers: int) -> Iterator[str]:
    """The address of a master that has so many workers, of one core each."""
    with ExitStack() as started:
        log = started.enter_context(daemon(aside, "master", "master.Master", "--port", "0"))
        master = told(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            of_worker = ("--cores", "1", "--memory", "600m", "--work-dir", str(aside / "work"))
            name = f"worker-{number}"
            log = started.enter_context(daemon(aside, name, "worker.Worker", *of_worker, master))
        for number in range(workers):
            told(aside / f"worker-{number}.log", r"(Successfully registered) with master")
        yield master


@contextmanager
def daemon(aside: Path, name: str, java_class: str, *arguments: str) -> Iterator[Path]:
    """Run a class of ``org.apache.spark.deploy`` meanwhile; the file that it logs to."""
    import pyspark

    home, conf, log = Path(pyspark.__file__).parent, aside / "conf", aside / f"{name}.log"
    conf.mkdir(exist_ok=True)
    (conf / "log4j2.properties").write_text(LOGGING)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA.replace('"', ""),
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{java_class}"]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    try:
        yield log
    finally:
        process.terminate()  # a worker ends its executors as it goes
        process.wait(WAIT_S)


def told(log: Path, words: str) -> str:
    """What a daemon logs once it is ready."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        found = re.search(words, log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"{words} in vain: {log.read_text()[-3000:]}")
