"""What the tests of the reader's columns share: one process for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.jvm.texts_process import TextsProcess, started


@pytest.fixture(scope="session")
def texts_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextsProcess]:
    """A process that answers what texts and entries become in Java."""
    with started(tmp_path_factory.mktemp("classes")) as found:
        yield found
