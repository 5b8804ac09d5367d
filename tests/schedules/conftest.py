"""A store with nobody awake in it, and its clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.api.store import Store
from tests.schedules.due import opened
from tests.support.inside import FixedClock


@pytest.fixture
def clock() -> FixedClock:
    """The clock of the store."""
    return FixedClock()


@pytest.fixture
def store(tmp_path: Path, clock: FixedClock) -> Iterator[Store[Any]]:
    """An open, empty store."""
    with opened(tmp_path / "store", clock) as found:
        yield found
