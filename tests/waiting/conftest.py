"""What the tests of waiting share: a store whose commits need no disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[Any]]:
    """An open, empty store."""
    with logstore.open(tmp_path / "store", sync="os", background=False) as opened:
        yield opened
