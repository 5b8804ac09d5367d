"""Makes the format "logstore" known to every session of Spark whose Python has logstore installed.

Spark looks through the installed modules whose names begin with ``pyspark_``, and takes the
``DefaultSource`` of each. Invariant: importing this never fails, whatever is not installed, for an
error here would end sessions that have nothing to do with logstore.
"""

from __future__ import annotations

__all__: list[str] = []

try:
    from logstore.spark_io.source import LogstoreSource as DefaultSource
except ImportError:  # without the extra `spark` there is nothing to be known
    pass
else:
    __all__ += ["DefaultSource"]
