"""Prevents a power cut from losing what was made durable, and from leaving a hole behind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from tests import figures, seeds
from tests.power.cuts import POLICIES, Rig, Table
from tests.power.disks import KINDS, why_not

SEED = seeds.seed()
NAMES = tuple(POLICIES)
# In continuous integration a handful; `make torture` makes more than five hundred.
CUTS_OF_A_KIND = 2 if figures.times() == 1 else 6 * figures.times()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_power_cuts_under_load(tmp_path: Path) -> None:
    """Writers of every policy, cut at any moment, with one order of commits to compare with."""
    reasons = {kind.name: why_not(kind.name) for kind in KINDS}
    for name, why in reasons.items():
        if why:
            print(f"no power cuts of {name}: {why}")
    kinds = [kind for kind in KINDS if not reasons[kind.name]]
    if not kinds:
        pytest.skip("; ".join(sorted(set(reasons.values()))))
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    table = Table()
    try:
        for place, kind in enumerate(kinds):
            before = table.cuts.total() + table.in_recovery
            rig = Rig(tmp_path / f"disk-{place}", kind, rng, table)
            try:
                for number in range(CUTS_OF_A_KIND):
                    rig.one(NAMES[(number + place) % len(NAMES)])
            finally:
                rig.close()
            print(f"{kind}: {table.cuts.total() + table.in_recovery - before} cuts")
    finally:
        print(table.text())
    assert table.acknowledged["always"]
    assert not table.lost["always"]
    if native_or_none is not None and figures.times() > 1:
        assert min(table.of_lane[what] for what in ("adds", "reads", "acks"))
    figures.record("power", **table.figures(), file_systems=", ".join(map(str, kinds)), seed=SEED)
