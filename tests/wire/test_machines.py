"""Prevents what a client is told from being other than what a server tells: the machine of the
stream type, whose operations reach the store through the wire.

Once its commands go to a served store, word for word as to the peer. Once two client objects of
redis-py do them, one embedded in this process, one over TCP to the peer: alone, in pipelines and in
transactions.

LOGSTORE_TORTURE=n gives n times as many runs, others each time; the seed is printed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis

from logstore.redis import Redis
from tests.figures import record, times
from tests.groups import profile
from tests.groups.answers import Answer
from tests.groups.machine import Machine
from tests.groups.side import Side
from tests.groups.theirs import Theirs
from tests.peers.servers import Peer
from tests.support.inside import delete_index
from tests.support.machines import machine_seed, run_machine
from tests.wire.client import Client
from tests.wire.wired import How, Wired

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SEED = machine_seed(20250801)
STEPS = 60
RUNS = 6
KILL_EVERY = 250  # operations, most of them looks
PROFILES = {"redis": profile.REDIS, "valkey": profile.VALKEY}
COMPATS: dict[str, Any] = {"redis": "redis-8.2", "valkey": "valkey-9"}
PROTOCOLS = {"redis": 3, "valkey": 2}
LIMIT_S = 900 if times() == 1 else 3600


class Exact(Machine):
    """Refusals are compared whole, too: the words are the peers'."""

    kills: ClassVar[bool] = False
    operations: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="logstore-wire-"))

    def do(self, operation: str, *arguments: Any) -> Answer:
        type(self).operations += 1
        if self.kills and self.operations % KILL_EVERY == 0:
            self.dying = (0, True)
            self.done["server killed"] += 1
        return super().do(operation, *arguments)

    def compare(self, ours: Answer, theirs: Answer, where: str) -> None:
        super().compare(ours, theirs, where)
        super().compare(theirs, ours, f"{where}, the other way round")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder, ignore_errors=True)


class Embedded(Client):
    """A client of a store in this process, which is closed and opened again."""

    def __init__(self, path: Path, node_bytes: int, node_entries: int, **options: Any) -> None:
        self.path = path
        self._options = options
        sizes = {"node_max_bytes": node_bytes, "node_max_entries": node_entries}
        super().__init__(self._open(sizes))

    def _open(self, sizes: dict[str, int]) -> Redis:
        store = {"sync": "os", "background": False, **sizes}
        return Redis(self.path, store=store, **self._options)

    def close(self) -> None:
        self.client.close()

    def restart(self, how: str) -> None:
        if "checkpoint" in how:
            self.client.save()
        self.client.close()
        if "rebuild" in how:
            delete_index(self.path)
        self.client = self._open({})


def play(machine: type[Exact], peer: Peer, topic: str, runs: int, steps: int = STEPS) -> None:
    try:
        run_machine(machine, SEED, runs, steps)
    finally:
        Theirs(peer, 4096, 100)  # empties it, with the sizes that other tests expect
    print(peer.version, dict(machine.done))
    assert machine.done["step"] >= runs * steps // 4
    kills = machine.done["server killed"]
    assert bool(kills) == machine.kills
    record(f"{topic} {peer.name}", steps=machine.done["step"], kills=kills, differences=0)


def through_the_wire(peer: Peer, how: How, runs: int, steps: int = STEPS) -> None:
    class Played(Exact):
        profile = PROFILES[peer.name]
        kills = how == "process"

        def sides(self, node_bytes: int, node_entries: int) -> tuple[Side, Side]:
            ours = Wired(
                self.folder / "store", node_bytes, node_entries, profile=COMPATS[peer.name], how=how
            )
            return ours, Theirs(peer, node_bytes, node_entries)

    play(Played, peer, f"wire {how}", runs, steps)


@pytest.mark.timeout(LIMIT_S)
def test_a_served_store_tells_what_servers_tell(peer: Peer) -> None:
    through_the_wire(peer, "thread", RUNS)


@pytest.mark.timeout(LIMIT_S)
def test_random_histories_of_a_server_that_is_killed(redis_peer: Peer) -> None:
    through_the_wire(redis_peer, "process", 2, STEPS // 3 if times() == 1 else STEPS)


@pytest.mark.timeout(LIMIT_S)
def test_an_embedded_client_tells_what_one_of_a_server_tells(peer: Peer) -> None:
    protocol = PROTOCOLS[peer.name]

    class Played(Exact):
        profile = PROFILES[peer.name]

        def sides(self, node_bytes: int, node_entries: int) -> tuple[Side, Side]:
            self.near = Embedded(
                self.folder / "store", node_bytes, node_entries, compat=COMPATS[peer.name],
                protocol=protocol,
            )  # fmt: skip
            Theirs(peer, node_bytes, node_entries)  # empties it, and sets the sizes
            self.far = redis.Redis(port=peer.port, protocol=protocol)
            return self.near, Client(self.far)

        def teardown(self) -> None:
            super().teardown()
            self.far.close()

    play(Played, peer, "embedded", RUNS - 2)
