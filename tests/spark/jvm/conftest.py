"""What the tests of the reader's parts share: one process for all cases of a program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.jvm.split_dump import SplitDump
from tests.spark.jvm.texts_process import TextsProcess, started


@pytest.fixture(scope="session")
def texts_process() -> Iterator[TextsProcess]:
    """A process that answers what texts and entries become in Java."""
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def jvm() -> Iterator[SplitDump]:
    """Reads splits in the JVM."""
    made = SplitDump()
    yield made
    made.close()
