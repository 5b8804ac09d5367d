"""Prevents a judge of power cuts that lets a loss pass, or condemns what no store can keep."""

from __future__ import annotations

import pytest

from logstore.options import Sync
from tests.power.intents import Owned
from tests.power.judge import BrokenError, Done, Round, Store, settle

CUT_AT = 100.0


def add(at: float, n: int, **more: object) -> Done:
    """An acknowledged add."""
    op = {"op": "add", "marks": [f"t{n}"], "at": at - 0.001, **more}
    return Done(op, order=[(n, 0)], at=at)


def sync(at: float) -> Done:
    """An acknowledged ``store.sync()``."""
    return Done({"op": "sync", "at": at - 0.001}, at=at)


def judge(done: list[Done], there: int, policy: Sync = "os") -> int:
    """How many acknowledged operations are lost, of which the first ``there`` entries are kept."""
    order = [((n, 0), f"t{n}") for n in range(1, there + 1)]
    found = Store(order, {0: Owned()})
    outcome = settle(Store(), found, {0: Round(policy, done)}, CUT_AT, 0.1)
    return outcome.lost[policy]


def test_synced_entries_before_the_cut_must_be_there() -> None:
    with pytest.raises(BrokenError, match="made durable"):
        judge([add(99.0, 1), add(99.1, 2), sync(99.2), add(99.3, 3)], 1)
    assert judge([add(99.0, 1), add(99.1, 2), sync(99.2), add(99.3, 3)], 2) == 1
    with pytest.raises(BrokenError, match="made durable"):
        judge([add(99.0, 1), add(99.1, 2, firm=True)], 1)
    with pytest.raises(BrokenError, match="made durable"):
        judge([add(99.0, 1)], 0, "always")


def test_acknowledged_entries_during_the_cut_may_be_missing() -> None:
    assert judge([add(99.0, 1), add(99.1, 2), sync(100.002), add(100.003, 3)], 1) >= 1
    assert judge([add(99.0, 1), add(100.001, 2, firm=True)], 1) == 1
    assert judge([add(100.001, 1)], 0, "always") == 0


def test_a_hole_and_a_late_loss_under_everysec_are_found() -> None:
    with pytest.raises(BrokenError, match="lost 2"):
        judge([add(97.9, 1)], 0, "everysec")
    found = Store([((2, 0), "t2")], {0: Owned()})
    with pytest.raises(BrokenError, match="hole"):
        settle(Store(), found, {0: Round("os", [add(99.0, 1), add(99.1, 2)])}, CUT_AT, 0.1)
