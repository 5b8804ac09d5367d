"""Prevents servers behind TLS, or on a Unix socket, from being refused, or read without a check.

The wheels of the servers are built without TLS: there a relay of the test ends it in front of them.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from logstore.api.store import Store
from logstore.errors import PeerError
from logstore.transfer import Server, Wanted, export_server, import_server
from logstore.wire.server.server import Listen
from tests.peers.servers import Peer, binary_of
from tests.rdb.workload import fill
from tests.tools.commands import ok
from tests.transfer.dumps import body, ours
from tests.wire.served import serving

START_S = 60


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
def test_there_and_back_over_tls(
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
        end = time.monotonic() + START_S
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.02)
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
