"""Prevents consumer groups that answer, refuse or remember otherwise than Redis and Valkey do: a
machine does random operations on the store and on a server, and compares each answer, all that
XINFO and XPENDING tell, and the bytes of the nodes; also after reopening, after the index was built
anew, and after the death of a process in the midst of an operation.

LOGSTORE_TORTURE=n gives n times as many runs, others each time; the seed is printed.
With LOGSTORE_SHRINK=1 a failing run is made shorter, which may take minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import figures
from tests.groups import profile
from tests.groups.machine import Machine
from tests.groups.ours import Ours
from tests.groups.side import Side
from tests.groups.theirs import Theirs
from tests.peers.servers import Peer

pytestmark = [pytest.mark.peers, pytest.mark.slow]

MORE = int(os.environ.get("LOGSTORE_TORTURE") or 0)
SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or (random.getrandbits(32) if MORE else 20250801)
RUNS, STEPS = 150, 80
LEAST_STEPS = 10_000
PHASES = [Phase.generate, *[Phase.shrink] * bool(os.environ.get("LOGSTORE_SHRINK"))]


def play(known: profile.Profile, peer: Peer, runs: int) -> None:
    """Let the machine run on a store and a server."""

    class Played(Machine):
        profile = known

        def sides(self, node_bytes: int, node_entries: int) -> tuple[Side, Side]:
            self.folder = Path(tempfile.mkdtemp(prefix="logstore-groups-"))
            theirs = Theirs(peer, node_bytes, node_entries)
            return Ours(self.folder / "store", node_bytes, node_entries), theirs

        def teardown(self) -> None:
            super().teardown()
            shutil.rmtree(self.folder, ignore_errors=True)

    Played.done.clear()
    print(f"seed {SEED}: LOGSTORE_SEED={SEED} plays the same")
    how = settings(
        max_examples=runs * (MORE or 1), stateful_step_count=STEPS, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=PHASES,
    )  # fmt: skip
    try:
        run_state_machine_as_test(seed(SEED)(Played), settings=how)
    finally:
        Theirs(peer, 4096, 100)  # empties it, with the sizes that other tests expect
    print(peer.version, dict(Played.done))
    figures.record(f"groups {peer.name}", steps=Played.done["step"], differences=0)


@pytest.mark.timeout(3600 if MORE else 900)
def test_groups_are_those_of_redis(redis_peer: Peer) -> None:
    """Redis 8.2 is the reference."""
    play(profile.REDIS, redis_peer, RUNS)
    assert Machine.done["step"] >= LEAST_STEPS


@pytest.mark.timeout(3600 if MORE else 900)
def test_groups_are_those_of_valkey(valkey_peer: Peer) -> None:
    """Valkey has the groups of Redis 7.2, and what differs stands in one table."""
    play(profile.VALKEY, valkey_peer, RUNS)
    assert Machine.done["step"] >= LEAST_STEPS
