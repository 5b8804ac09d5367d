"""Measures how long a rebuild takes; prevents hints from being ignored when they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import figures
from tests.power.recovery_time import measure

LOG_BYTES, NODES = 24 << 20, 5_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_recovery_time(tmp_path: Path) -> None:
    """Per GiB of log and per million nodes; no limit is set, machines differ."""
    found = measure(tmp_path, LOG_BYTES * figures.times(), NODES * figures.times())
    print()
    for each in found:
        print(each.text())
    large, large_bare, small, small_bare = found
    assert large.hints_used
    assert not large_bare.hints_used
    assert large_bare.segments_scanned > large.segments_scanned
    assert large.nodes == large_bare.nodes
    assert small.nodes == small_bare.nodes
    figures.record(
        "recovery_time",
        s_per_gib_with_hints=round(large.s_per_gib, 2),
        s_per_gib_without=round(large_bare.s_per_gib, 2),
        s_per_million_nodes_with_hints=round(small.s_per_million, 2),
        s_per_million_nodes_without=round(small_bare.s_per_million, 2),
        log_bytes=large.log_bytes, nodes=small.nodes,
    )  # fmt: skip
