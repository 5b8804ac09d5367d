"""What the tests of the engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import preload


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library below a process that is to be killed."""
    return preload.built(tmp_path_factory.mktemp("killer"), Path(__file__).with_name("killer.c"))
