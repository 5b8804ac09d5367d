"""The jar of the reader in the JVM where it was made, else none. For the demo, too: no pytest here.

Invariant: what is started with it reads by the JVM, and without it by Python, without a word.
"""

from __future__ import annotations

from logstore.errors import OptionError
from logstore.spark_io import jar


def found_jar() -> str:
    """The value of ``spark.jars``: the path of the jar; empty if there is none."""
    try:
        return jar()
    except OptionError:
        return ""
