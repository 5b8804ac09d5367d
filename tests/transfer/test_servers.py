"""Prevents streams that reach a server, or come from one, other than they are."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.errors import OptionError, PeerError, StreamExistsError
from logstore.rdb import dump
from logstore.transfer import (
    Server,
    Wanted,
    export_file,
    export_server,
    import_file,
    import_server,
)
from tests.peers.servers import Peer
from tests.rdb.workload import fill, full_info
from tests.support.inside import FixedClock
from tests.tools.commands import COMMAND, environment, invoke, objects, ok
from tests.transfer.dumps import body, dumps, ours
from tests.transfer.durable import DurableServer

pytestmark = pytest.mark.peers
SEEDS = range(12)


@pytest.fixture
def server(peer: Peer) -> Any:
    """A connection to the peer."""
    with Server(f"redis://127.0.0.1:{peer.port}/0") as made:
        yield made


def test_from_a_server_and_back(peer: Peer, server: Server, store: Store[bytes]) -> None:
    for seed in SEEDS:
        fill(peer, f"s{seed}", seed)
    peer.command("SET", "text", "x")
    wanted = {name: peer.command("DUMP", name) for name in peer.command("KEYS", "s*")}
    info = {name: full_info(peer, name) for name in wanted}
    assert import_server(store, server).streams == len(wanted)
    assert ours(store) == {name: body(payload) for name, payload in wanted.items()}
    assert import_server(store, server).same == len(wanted)
    assert export_server(store, server).same == len(wanted)
    peer.command("FLUSHALL")
    assert export_server(store, server).streams == len(wanted)
    assert {name: peer.command("DUMP", name) for name in wanted} == wanted
    assert {name: full_info(peer, name) for name in wanted} == info


def test_a_file_of_ours_is_loaded_by_a_server(
    durable: DurableServer, store: Store[bytes], tmp_path: Path, peer: Peer
) -> None:
    """Server, file, store, file, server: the same in the end."""
    for seed in SEEDS:
        fill(peer, f"s{seed}", seed)
    peer.command("SAVE")
    folder = Path(peer.command("CONFIG", "GET", "dir")[1].decode())
    import_file(store, folder / "dump.rdb")
    durable.kill()
    for each in (tmp_path / "server").rglob("*.base.rdb"):
        export_file(store, each, Wanted(policy="replace"))
    durable.start()
    client = durable.client()
    found = {name: body(client.execute_command("DUMP", name)) for name in dumps(peer)}
    assert found == dumps(peer)
    name = "s3"
    assert client.execute_command("XINFO", "STREAM", name, "FULL", "COUNT", 0) == full_info(
        peer, name
    )
    client.close()


def entries_and_groups(payload: bytes, *, times: bool = True) -> Any:
    """What is in a payload but the shape of the nodes."""
    value = dump.decode(payload)
    info = value.info
    groups = [
        (
            group.name, group.last, group.entries_read,
            sorted(each.name for each in group.consumers),
            [
                (
                    group.pending.id_at(place), group.pending.counts[place],
                    group.consumers[owner - 1].name,
                    group.pending.times[place] if times else 0,
                )
                for place, owner in enumerate(group.pending.owners)
            ],
        )
        for group in info.groups
    ]  # fmt: skip
    return info.length, info.last, info.max_deleted, info.entries_added, groups


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_too_large_for_a_payload_goes_by_pages(
    peer: Peer, server: Server, store: Store[bytes], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("logstore.transfer.server_import.PAGE", 7)
    monkeypatch.setattr("logstore.transfer.server_export.BATCH", 5)
    fill(peer, "s", seed)
    entries = peer.command("XRANGE", "s", "-", "+")
    before = peer.command("DUMP", "s")
    report = import_server(store, server, dump_max_bytes=0)
    assert "by pages" in report.notes[0]
    assert store.streams() == [b"s"]
    here = store.stream("s").dump()
    found, wanted = entries_and_groups(here), entries_and_groups(before)
    assert found[:4] == wanted[:4]
    for group, was in zip(found[4], wanted[4], strict=True):
        assert group[:4] == was[:4]
        assert [each[:3] for each in group[4]] == [each[:3] for each in was[4]]
        for each, old in zip(group[4], was[4], strict=True):
            assert abs(each[3] - old[3]) <= 1  # the server tells how long ago, in milliseconds
    store.restore("s", before, replace=True)
    peer.command("FLUSHALL")
    report = export_server(store, server, dump_max_bytes=-1)
    assert peer.command("KEYS", "*") == [b"s"]
    assert peer.command("XRANGE", "s", "-", "+") == entries
    back = entries_and_groups(peer.command("DUMP", "s"))
    assert back[:4] == wanted[:4]
    ids = {entry[0] for entry in entries}
    for group, was in zip(back[4], wanted[4], strict=True):
        there = [
            each for each in was[4] if str(logstore.StreamID.unpacked(each[0])).encode() in ids
        ]
        assert group[:4] == was[:4]
        assert group[4] == there
    again = export_server(store, server, dump_max_bytes=-1)
    assert again.same == 1


def test_names_that_are_taken_and_times_to_live(
    peer: Peer, server: Server, store: Store[bytes], clock: FixedClock
) -> None:
    clock.ms = 1000 * int(peer.command("TIME")[0])
    for name in ("a", "b"):
        store.stream(name).add({"f": name}, "1-1")
        store.stream(name).expire(after=500)
        peer.command("XADD", name, "2-2", "f", "v")
    store.stream("b").persist()
    peer.command("SET", "b", "text", "KEEPTTL")
    with pytest.raises(StreamExistsError, match="another key"):
        export_server(store, server)
    assert export_server(store, server, Wanted(policy="skip")).kept == 2
    assert export_server(store, server, Wanted(policy="replace")).streams == 2
    assert [peer.command("PEXPIRETIME", name) for name in "ab"] == [clock.ms + 500_000, -1]
    export_server(store, server, Wanted([b"a"], b"large:"), dump_max_bytes=-1)
    assert peer.command("PEXPIRETIME", "large:a") == clock.ms + 500_000
    for limit in (1 << 20, 0):
        wanted = Wanted([b"[ab]"], b"%d:" % limit)
        import_server(store, server, wanted, dump_max_bytes=limit)
        assert store.stream(f"{limit}:a").ttl == store.stream("a").ttl
        assert store.stream(f"{limit}:b").ttl is None


def test_servers_that_refuse_or_are_not_there(
    peer: Peer, store: Store[bytes], tmp_path: Path
) -> None:
    with pytest.raises(OptionError):
        Server("http://127.0.0.1")
    with (
        Server("redis://127.0.0.1:1/0") as nobody,
        pytest.raises(PeerError, match="cannot be reached"),
    ):
        import_server(store, nobody)
    peer.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+scan", "+info")
    url = f"redis://reader:wrong@127.0.0.1:{peer.port}/0"
    with Server(url) as server, pytest.raises(PeerError) as refused:
        import_server(store, server)
    assert "wrong@" not in str(refused.value)
    peer.command("XADD", "s", "1-1", "f", "v")
    with Server(url, password="secret") as server, pytest.raises(PeerError, match="XINFO"):
        import_server(store, server)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    failed = invoke("redis", "import", tmp_path / "other", url, "--password-file", secret, "--json")
    assert failed.exit_code == 1
    assert objects(failed.stderr)[0]["error"] == "PeerError"
    peer.command("ACL", "DELUSER", "reader")
    assert store.streams() == []


def test_an_export_that_is_killed_is_begun_again_and_goes_on(
    durable: DurableServer, tmp_path: Path
) -> None:
    path, names = tmp_path / "store", [f"s{place}" for place in range(30)]
    with logstore.open(path, sync="os") as store:
        for name in names:
            store.stream(name).add_many(((at, 1), {"f": "x" * 100}) for at in range(1, 500))
        wanted = ours(store)
    client = durable.client()
    for moment in range(5):
        process = subprocess.Popen(
            [*COMMAND, "redis", "export", str(path), durable.url, "--dump-max", "0"],
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not client.execute_command("DBSIZE") and process.poll() is None:
            time.sleep(0.002)
        time.sleep(0.02 * moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if moment == 2:
            durable.kill()
            durable.start()
        for name in client.execute_command("KEYS", "s*"):
            assert client.execute_command("XLEN", name) == 499
    report = objects(ok("redis", "export", path, durable.url, "--json", "--dump-max", "0"))[0]
    assert report["streams"] + report.get("same", 0) == len(names)
    found = {name: client.execute_command("XLEN", name) for name in wanted}
    assert set(found.values()) == {499}
    assert client.execute_command("DBSIZE") == len(names)
    client.close()
