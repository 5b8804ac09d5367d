"""Prevents consumer groups that answer, refuse or remember otherwise than Redis and Valkey do: a
machine does random operations on the store and on a server, and compares each answer, all that
XINFO and XPENDING tell, and the bytes of the nodes; also after reopening, after the index was built
anew, and after the death of a process in the midst of an operation.

LOGSTORE_TORTURE=n gives n times as many runs, others each time; the seed is printed.
With LOGSTORE_SHRINK=1 a failing run is made shorter, which may take minutes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests import figures
from tests.groups import profile
from tests.groups.machine import Machine
from tests.groups.ours import Ours
from tests.groups.side import Side
from tests.groups.theirs import Theirs
from tests.peers.servers import Peer
from tests.support.machines import machine_seed, run_machine

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SEED = machine_seed(20250801)
RUNS, STEPS = 150, 80
LEAST_STEPS = 10_000


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

    try:
        run_machine(Played, SEED, runs, STEPS)
    finally:
        Theirs(peer, 4096, 100)  # empties it, with the sizes that other tests expect
    print(peer.version, dict(Played.done))
    figures.record(f"groups {peer.name}", steps=Played.done["step"], differences=0)


@pytest.mark.timeout(3600 if figures.times() > 1 else 900)
def test_groups_are_those_of_redis(redis_peer: Peer) -> None:
    """Redis 8.2 is the reference."""
    play(profile.REDIS, redis_peer, RUNS)
    assert Machine.done["step"] >= LEAST_STEPS


@pytest.mark.timeout(3600 if figures.times() > 1 else 900)
def test_groups_are_those_of_valkey(valkey_peer: Peer) -> None:
    """Valkey has the groups of Redis 7.2, and what differs stands in one table."""
    play(profile.VALKEY, valkey_peer, RUNS)
    assert Machine.done["step"] >= LEAST_STEPS
