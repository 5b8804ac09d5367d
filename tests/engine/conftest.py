"""What the tests of the engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.engine.commit import log_tail
from tests.support import preload
from tests.support.inside import let_lag


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library below a process that is to be killed."""
    return preload.built(tmp_path_factory.mktemp("killer"), Path(__file__).with_name("killer.c"))


@pytest.fixture
def by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds are commits of the lane, and the index may be 64 of them behind."""
    let_lag(monkeypatch, 64, lane=True)


@pytest.fixture
def by_lane_alone(by_lane: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing looks at the log's end meanwhile, however long a busy machine takes."""
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 3600 * 10**9)
