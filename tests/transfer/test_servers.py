"""Prevents streams that reach a server, or come from one, other than they are, also over TLS."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.api.store import Store
from logstore.errors import OptionError, PeerError, StreamExistsError
from logstore.rdb import dump_payload
from logstore.transfer import (
    Server,
    Wanted,
    export_file,
    export_server,
    import_file,
    import_server,
)
from logstore.wire.server.server import Listen
from tests.peers.servers import Peer, binary_of
from tests.rdb.bodies import body
from tests.rdb.workload import fill, full_info
from tests.support.inside import FixedClock
from tests.support.waits import eventually
from tests.tools.commands import COMMAND, environment, invoke, objects, ok
from tests.transfer.dumps import dumps, ours
from tests.transfer.durable import DurableServer
from tests.wire.served import serving

SEEDS = range(12)


@pytest.fixture
def server(peer: Peer) -> Any:
    """A connection to the peer."""
    with Server(f"redis://127.0.0.1:{peer.port}/0") as made:
        yield made


@pytest.mark.peers
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


@pytest.mark.peers
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
    value = dump_payload.decode(payload)
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


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_too_large_for_a_payload_goes_by_pages(
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


@pytest.mark.peers
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
        assert store.stream(f"{limit}:a").expires_in == store.stream("a").expires_in
        assert store.stream(f"{limit}:b").expires_in is None


@pytest.mark.peers
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


@pytest.mark.peers
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", made[0], "-keyout",
         made[1]], check=True, capture_output=True,
    )  # fmt: skip
    return made


def context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """What a server takes."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*certificate)
    return made


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(port: int, certificate: tuple[Path, Path]) -> Iterator[int]:
    """A port where TLS is spoken, in front of one where it is not."""
    tls = context(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near, _ = listening.accept()
                    threading.Thread(target=one, args=(near,), daemon=True).start()

        def one(near: socket.socket) -> None:
            with (
                suppress(OSError),
                tls.wrap_socket(near, server_side=True) as inner,
                socket.create_connection(("127.0.0.1", port)) as far,
            ):
                back = threading.Thread(target=_pump, args=(far, inner), daemon=True)
                back.start()
                _pump(inner, far)
                back.join()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.peers
def test_streams_round_trip_over_tls(
    peer: Peer, store: Store[bytes], certificate: tuple[Path, Path]
) -> None:
    for seed in range(4):
        fill(peer, f"s{seed}", seed)
    wanted = {name: body(peer.command("DUMP", name)) for name in peer.command("KEYS", "*")}
    with relay(peer.port, certificate) as port:
        with Server(f"rediss://127.0.0.1:{port}/0") as strange, pytest.raises(PeerError):
            import_server(store, strange)  # nobody vouches for the certificate
        assert not list(store.streams())
        with Server(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate[0]}") as server:
            assert import_server(store, server).streams == len(wanted)
            assert ours(store) == wanted
            report = export_server(store, server, Wanted(prefix=b"back:"))
            assert report.streams == len(wanted)
    for name, value in wanted.items():
        assert body(peer.command("DUMP", b"back:" + name)) == value


def test_from_a_store_that_is_served_over_tls(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    listen = Listen(port=0, tls=context(certificate))
    with serving(tmp_path / "served", listen=listen, password=b"secret") as served:
        served.service.store.stream("s").add_many([{"n": n} for n in range(50)])
        address = f"rediss://127.0.0.1:{served.port}/0?ssl_ca_certs={certificate[0]}"
        ok("redis", "import", tmp_path / "store", address, "--password-file", password)
    assert len(ok("range", tmp_path / "store", "s").splitlines()) == 50


@contextmanager
def on_a_socket(name: str, folder: Path) -> Iterator[Path]:
    """A server that listens on a Unix socket only."""
    binary = binary_of(name)
    if binary is None:
        pytest.skip(f"no {name} server")
    path = folder / "socket"
    process = subprocess.Popen(
        [str(binary), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(path.exists)
        yield path
    finally:
        process.terminate()
        process.wait()


@pytest.mark.peers
@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_from_a_unix_socket(name: str, tmp_path: Path) -> None:
    with on_a_socket(name, tmp_path) as path:
        with redis.Redis(unix_socket_path=str(path)) as client:
            client.xadd("s", {"a": 1}, id="5-0")
            client.xgroup_create("s", "g", "0")
        ok("redis", "import", tmp_path / "store", f"unix://{path}")
        assert ok("range", tmp_path / "store", "s").count("5-0") == 1
        ok("redis", "export", tmp_path / "store", f"unix://{path}?db=1")
        with redis.Redis(unix_socket_path=str(path), db=1) as client:
            assert client.xrange("s") == [(b"5-0", {b"a": b"1"})]
            assert len(client.xinfo_groups("s")) == 1


def test_from_a_store_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with serving(tmp_path / "served", listen=Listen(host=None, unix_socket=path)) as served:
        served.service.store.stream("s").add({"a": 1}, id="5-0")
        ok("redis", "import", tmp_path / "store", f"unix://{path}")
    assert ok("range", tmp_path / "store", "s").count("5-0") == 1
