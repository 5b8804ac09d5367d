"""The Spark source: reads the stored history in parallel, straight from the segments.

``register(spark)`` makes ``spark.read.format("logstore")`` known to a session. Spark runs the
source in Python processes of its own, which must be able to import logstore. That is checked here,
once, for Spark's own message does not name the cause.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from logstore import __version__
from logstore.errors import OptionError
from logstore.spark_io import spark_jar, spark_log, spark_options
from logstore.spark_io.spark_jar import jar

__all__ = ["jar", "register"]

_CHECK = "import logstore, logstore.spark_io.source, pyarrow; print(logstore.__version__)"
_CHECK_TIMEOUT_S = 120


def register(spark: Any, reader: str = spark_options.AUTO) -> None:
    """Make ``spark.read.format("logstore")`` work in this session.

    In local mode a session whose Python cannot import logstore is set to the running one; on a
    cluster one small task checks the workers. Plans are logged at the level that the logger
    ``logstore.spark`` has here.

    Args:
        spark: the session.
        reader: ``auto``: the reader in the JVM reads if the session was started with its jar
            (`jar`), else the Python source. ``jvm``: add the jar to the session now. That holds
            for the thread that calls this, and for sessions that it makes of this one; another
            thread keeps what it had. Over Spark Connect the jar is sent to the server, and holds
            for this session alone. To have it everywhere give the jar in ``spark.jars``.

    Raises:
        OptionError: the Python of the workers cannot import logstore, and the error names
            PYSPARK_PYTHON; no such reader; or this installation has no jar.
    """
    from logstore.spark_io.source import LogstoreSource

    if reader not in (spark_options.AUTO, spark_options.JVM):
        raise OptionError(f"reader is {spark_options.AUTO} or {spark_options.JVM}, not {reader!r}")
    if reader == spark_options.JVM:
        spark_jar.add(spark)
    context = getattr(spark, "sparkContext", None)
    cores = 0
    if context is not None:
        cores = int(context.defaultParallelism)
        _check_python(context)
        # What the reader in the JVM is to know of the session.
        spark.conf.set("spark.logstore.python", context.pythonExec)
        spark.conf.set("spark.logstore.logLevel", str(spark_log.level()))
    # A class that is made here is sent to Spark's processes whole, not by name: so it carries what
    # it knows of the session.
    known = {"cores": cores, "log_level": spark_log.level()}
    source = type("RegisteredSource", (LogstoreSource,), known)
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:  # pyspark 4.0 does not replace what it found by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _check_python(context: Any) -> None:
    if str(context.master).startswith("local") and "local-cluster" not in str(context.master):
        if _version_in(context.pythonExec) != __version__:
            if _version_in(sys.executable) != __version__:
                raise _python_error(context.pythonExec)
            context.pythonExec = sys.executable
        return
    # Plans are made beside the driver, with the command that runs tasks on the workers.
    if _version_in(context.pythonExec) != __version__ or _version_in_task(context) != __version__:
        raise _python_error(context.pythonExec)


def _version_in(python: str) -> str:
    """The version of logstore that a Python imports; empty if it cannot."""
    if python == sys.executable:
        return __version__
    try:
        done = subprocess.run(
            [python, "-c", _CHECK],
            capture_output=True,
            text=True,
            timeout=_CHECK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version_in_task(context: Any) -> str:
    def check(_: Any) -> str:
        try:
            import logstore
            from logstore.spark_io.source import NAME
        except ImportError:
            return ""
        return logstore.__version__ if NAME else ""

    found: list[str] = context.parallelize([0], 1).map(check).collect()
    return found[0]


def _python_error(python: str) -> OptionError:
    return OptionError(
        f"the Python of Spark's workers ({python}) cannot import logstore {__version__} with its "
        "extra 'spark': set the environment variable PYSPARK_PYTHON to a Python that can, such as "
        f"{sys.executable}, before the session is started"
    )
