"""The jar of the reader in the JVM, for tests.

Invariant: where LOGSTORE_REQUIRE_JVM is set (as in continuous integration, where there is a JDK),
a jar that is missing is a failure, and elsewhere a skip with a reason.
"""

from __future__ import annotations

import os

import pytest

from logstore.errors import OptionError
from logstore.spark_io import jar


def require_jar() -> str:
    """The path of the jar."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
    try:
        return jar()
    except OptionError as error:
        if os.environ.get("LOGSTORE_REQUIRE_JVM"):
            pytest.fail(str(error))
        pytest.skip(f"the reader in the JVM is not built: {error}")
