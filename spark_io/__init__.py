"""The Spark source: reads the stored history in parallel, straight from the segments.

``register(spark)`` makes ``spark.read.format("logstore")`` known to a session.
"""

from __future__ import annotations

from logstore.spark_io.register import register

__all__ = ["register"]
