"""Prevents archives that miss entries, hold them twice, or outlive what they trimmed elsewhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.api.store import Store
from logstore.errors import IDOrderError
from tests.store.conftest import OpenStore
from tests.support.waits import eventually
from tests.tools.commands import COMMAND, environment, invoke
from tests.transfer.durable import DurableServer
from tests.transfer.followers import FOLLOWER, WAIT_S, add, followed, ids

pytestmark = pytest.mark.peers


def test_following_takes_existing_and_new_entries(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", 1, 2, 3)
    client.execute_command("XGROUP", "CREATE", "s", "g", "2-1")
    with followed(store, durable, b"s", b"new*"):
        eventually(lambda: len(store.stream("s")) == 3)
        add(client, "s", 4, 5)
        add(client, "new", 7)
        add(client, "other", 7)
        eventually(lambda: len(store.stream("s")) == 5 and b"new" in store.streams())
        add(client, "new", 8)
        eventually(lambda: len(store.stream("new")) == 2)
    assert ids(store, "s") == [f"{n}-1" for n in range(1, 6)]
    assert store.streams() == [b"new", b"s"]
    assert store.stream("s")["5-1"].pairs == [(b"n", b"5"), (b"n", b"again")]
    assert [group.name for group in store.stream("s").info_full().group_infos] == [b"g"]
    add(client, "s", 6)
    with followed(store, durable, b"s"):
        eventually(lambda: ids(store, "s")[-1] == "6-1")


def test_a_stream_that_got_a_schema_here_is_the_same_one(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """Its values were compared as numbers with what the server has, and were other ones."""
    client.execute_command("XADD", "s", "1-1", "n", "5")
    with followed(store, durable, b"s"):
        eventually(lambda: len(store.stream("s")) == 1)
    store.stream("s").configure(schema="n int")
    client.execute_command("XADD", "s", "2-1", "n", "6")
    with followed(store, durable, b"s"):
        eventually(lambda: len(store.stream("s")) == 2)
    assert store.streams() == [b"s"]
    assert [entry["n"] for entry in store.stream("s").range()] == [5, 6]


def test_only_what_groups_are_done_with_is_trimmed(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", *range(1, 11))
    add(client, "free", 1, 2)
    for group in "gh":
        client.execute_command("XGROUP", "CREATE", "s", group, "0")
        client.execute_command("XREADGROUP", "GROUP", group, "c", "COUNT", 8, "STREAMS", "s", ">")
        client.execute_command("XACK", "s", group, *(f"{n}-1" for n in range(1, 9) if n != 6))
    client.execute_command("XACK", "s", "h", "6-1")

    def left() -> list[bytes]:
        return [entry[0] for entry in client.execute_command("XRANGE", "s", "-", "+")]

    with followed(store, durable, trim="acked"):
        eventually(lambda: left()[0] == b"6-1")
        client.execute_command("XACK", "s", "g", "6-1")
        eventually(lambda: left() == [b"9-1", b"10-1"])
        eventually(lambda: client.execute_command("XLEN", "free") == 0)
        add(client, "s", 11)
        eventually(lambda: ids(store, "s")[-1] == "11-1")
    assert left() == [b"9-1", b"10-1", b"11-1"]
    with followed(store, durable, trim="all"):
        eventually(lambda: not left())
    assert ids(store, "s") == [f"{n}-1" for n in range(1, 12)]


def test_entries_missing_here_are_not_trimmed_on_the_server(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """An entry that was deleted here, and that the server still has."""
    add(client, "s", 1, 2, 3)
    with followed(store, durable):
        eventually(lambda: b"s" in store.streams())
    store.stream("s").delete("2-1")
    with followed(store, durable, trim="all") as report:
        eventually(lambda: any("not trimmed" in note for note in report.notes))
    assert client.execute_command("XLEN", "s") == 3


def test_another_stream_of_the_name_is_kept_beside(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """One that has other entries, and a higher last ID."""
    add(client, "s", 1, 2, 3)
    store.stream("s").add_many([((1, 1), {"a": 1}), ((9, 1), {"a": 1})])
    with followed(store, durable, trim="all") as report:
        eventually(lambda: report.trimmed == 3)
    assert ids(store, "s") == ["1-1", "2-1", "3-1"]
    assert ids(store, "s:until:9-1") == ["1-1", "9-1"]


def test_nothing_is_trimmed_before_it_is_durable(
    durable: DurableServer, client: Any, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    real = type(store).sync
    held = threading.Event()

    def sync(self: Any) -> None:
        before = client.execute_command("XLEN", "s")
        held.wait(0.3)
        assert client.execute_command("XLEN", "s") >= before
        real(self)

    monkeypatch.setattr(type(store), "sync", sync)
    add(client, "s", 1, 2)
    with followed(store, durable, trim="all") as report:
        eventually(lambda: len(store.stream("s")) == 2)
        assert client.execute_command("XLEN", "s") == 2
        held.set()
        eventually(lambda: report.trimmed == 2)
    engine = store._engine()
    assert engine.wake.durable_upto == engine.wake.log().applied


def test_deletes_are_kept_or_applied_and_trims_are_kept(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", *range(1, 21))
    with followed(store, durable):
        eventually(lambda: len(store.stream("s")) == 20)
        client.execute_command("XDEL", "s", "5-1")
    assert len(store.stream("s")) == 20
    client.execute_command("XTRIM", "s", "MINID", "3")
    with followed(store, durable, deletes="apply") as report:
        eventually(lambda: report.deleted == 1)
        client.execute_command("XDEL", "s", "9-1", "10-1", "20-1")
        eventually(lambda: report.deleted == 3)
        client.execute_command("XTRIM", "s", "MAXLEN", "4")
        add(client, "s", 21)
        eventually(lambda: ids(store, "s")[-1] == "21-1")
        client.execute_command("XDEL", "s", "18-1")
        eventually(lambda: report.deleted >= 4)
    gone = {5, 9, 10, 18, 20}
    found = [n for n in range(1, 22) if n not in gone]
    assert ids(store, "s") == [f"{n}-1" for n in found]


def test_an_add_beside_the_follower_is_an_error(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", 1)
    with (  # noqa: PT012  (it comes when the follower has ended)
        pytest.raises(IDOrderError, match="somebody else"),
        followed(store, durable),
    ):
        eventually(lambda: len(store.stream("s")) == 1)
        store.stream("s").add({"mine": 1}, "50-0")
        add(client, "s", 2)
        eventually(lambda: FOLLOWER not in [each.name for each in threading.enumerate()])


def test_the_server_is_killed_and_comes_back(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", 1, 2)
    with followed(store, durable, trim="acked") as report:
        eventually(lambda: len(store.stream("s")) == 2)
        for number in (3, 4):
            durable.kill()
            eventually(lambda wanted=number - 2: report.reconnects >= wanted)
            durable.start()
            again = durable.client()
            add(again, "s", number)
            again.close()
            eventually(lambda wanted=number: len(store.stream("s")) == wanted)
    assert ids(store, "s") == ["1-1", "2-1", "3-1", "4-1"]


# -- everything dies ------------------------------------------------------------------------------
class Writers:
    """Threads that add to a server, over its deaths; what was acknowledged must be archived."""

    def __init__(self, server: DurableServer) -> None:
        self.acknowledged: dict[str, list[bytes]] = {"a": [], "b": []}
        self._server = server
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name,)) for name in self.acknowledged
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str) -> None:
        rng = random.Random(name)
        client = self._server.client()
        while not self._stop.is_set():
            try:
                id = client.execute_command("XADD", name, "*", "n", rng.randrange(1000))
                self.acknowledged[name].append(id)
            except redis.RedisError:
                time.sleep(0.02)
            time.sleep(rng.random() / 200)
        client.close()

    def stop(self) -> None:
        """No more entries."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)


def test_nothing_is_lost_or_doubled_when_either_side_is_killed(
    durable: DurableServer, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    rng = random.Random(5)
    writers = Writers(durable)
    process: subprocess.Popen[bytes] | None = None
    try:
        for turn in range(8):
            process = _follower(path, durable)
            eventually((path / "LOCK").exists)
            time.sleep(0.3 + rng.random() / 2)
            if turn % 3 == 2:
                durable.kill()
                time.sleep(0.1)
                durable.start()
                time.sleep(0.3)
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        writers.stop()
        if process is not None:
            process.kill()
    process = _follower(path, durable)
    eventually(lambda: _caught_up(path, writers.acknowledged))
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    client = durable.client()
    with logstore.open(path, readonly=True) as store:
        for name, wanted in writers.acknowledged.items():
            found = [str(entry.id).encode() for entry in store.stream(name)]
            assert len(set(found)) == len(found)
            assert set(wanted) <= set(found)
            assert found == sorted(found, key=lambda text: tuple(map(int, text.split(b"-"))))
            assert client.execute_command("XLEN", name) == 0
    client.close()


def _follower(path: Path, server: DurableServer) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "redis", "import", str(path), server.url, "--follow", "--trim", "acked",
         "--yes", "--every", "100ms"],
        env=environment(), stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _caught_up(path: Path, wanted: dict[str, list[bytes]]) -> bool:
    with logstore.open(path, readonly=True) as store:
        return all(
            not here or str(store.stream(name).last_id) == here[-1].decode()
            for name, here in wanted.items()
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(
    durable: DurableServer, client: Any, tmp_path: Path, number: int
) -> None:
    add(client, "s", 1)
    path = tmp_path / "archive"
    process = _follower(path, durable)
    eventually(lambda: client.execute_command("XLEN", "s") == 0)
    os.kill(process.pid, number)
    assert process.wait(WAIT_S) == 0
    with logstore.open(path) as store:
        assert store.recovery["index_trusted"]
        assert ids(store, "s") == ["1-1"]


def test_following_replaces_nothing(durable: DurableServer, tmp_path: Path) -> None:
    done = invoke("redis", "import", tmp_path / "x", durable.url, "--follow", "--replace")
    assert done.exit_code == 2
