"""The jar of the reader in the JVM: where it is, and how a session gets it.

Invariant: importing this needs nothing, and nothing here adds a jar to a session by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logstore.errors import OptionError
from logstore.spark_io.spark_log import log

NAME = "logstore-spark.jar"
HOW = (
    "start the session with the path that logstore.spark_io.jar() gives in spark.jars, or call "
    "register(spark, reader='jvm')"
)


def jar() -> str:
    """The path of the jar with the reader in the JVM, for ``spark.jars``.

    Returns:
        The path, absolute.

    Raises:
        OptionError: this installation has none.
    """
    found = Path(__file__).resolve().parent / "jvm" / NAME
    if not found.is_file():
        raise OptionError(
            f"{found} is not there: `make jar` in a checkout makes it, where there is a JDK; the "
            "Python source reads without it"
        )
    return str(found)


def add(spark: Any) -> None:
    """Add the jar to a session that runs; over Spark Connect it is sent to the server."""
    path = jar()
    if getattr(spark, "sparkContext", None) is None:
        # ADD JAR would be taken there without a word, and the Python source would go on reading.
        spark.addArtifacts(path)
        return
    if "'" in path or "\n" in path:
        raise OptionError(f"Spark's ADD JAR takes no such path, copy the jar elsewhere: {path!r}")
    spark.sql(f"ADD JAR '{path}'").collect()
    log.warning(
        "reader='jvm' holds for this thread and what it makes of its session; other threads keep "
        "the Python source: to have it everywhere start the session with the jar in spark.jars"
    )
