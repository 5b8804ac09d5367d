"""What the tests of waiting share: a store that needs no disk, and waiters who never look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.groups import admin
from logstore.engine.shm.waiters import PACE
from logstore.engine.waiting import handoff, wait_session

PATIENT_S = 900.0  # longer than any test may take


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[Any]]:
    """An open, empty store."""
    with logstore.open(tmp_path / "store", sync="os", background=False) as opened:
        yield opened


@pytest.fixture
def own_pace() -> Iterator[None]:
    """The test sets how often waiters look."""
    before = PACE.slice_s
    yield
    PACE.set(before)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was seen at all was seen lately."""
    monkeypatch.setattr(admin, "SEEN_MS", 600_000)


@pytest.fixture
def patient(own_pace: None) -> None:
    """Waiters sleep until they are woken, in this process and in those forked from it.

    Otherwise looking once a slice would hide a wake-up that is missing.
    """
    PACE.set(PATIENT_S)


@pytest.fixture
def by_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits again takes the steps of a session, as tasks do, and where nothing is compiled."""
    monkeypatch.setattr(wait_session, "kept_record", lambda *_: None)


@pytest.fixture
def left_to_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who adds hands nothing to those who wait, as with large batches: they read for themselves."""
    monkeypatch.setattr(handoff, "SERVED_MAX_ENTRIES", -1)
