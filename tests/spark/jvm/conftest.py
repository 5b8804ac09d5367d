"""One JVM for all cases of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.jvm.split_dump import SplitDump


@pytest.fixture(scope="module")
def jvm() -> Iterator[SplitDump]:
    """Reads splits in the JVM."""
    made = SplitDump()
    yield made
    made.close()
