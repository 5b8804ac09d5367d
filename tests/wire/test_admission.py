"""Prevents strangers who hold places, files, the event loop or the server's time from those who are
logged in.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from logstore.errors import FileSystemError
from logstore.wire.server import admission, listening, turns
from logstore.wire.server.listening import Listen
from logstore.wire.server.turns import ROUND_TURNS, Turns, Watch
from tests.peers.servers import Peer
from tests.support.waits import eventually
from tests.tools.commands import process
from tests.wire.attacks.servers import _certificate
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import serving

WAITS_S = 60
IN_TIME_S = 4.0  # enough to log in on a busy machine
SECRET = b"a secret"


def context(directory: Path) -> ssl.SSLContext:
    """TLS of a server."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*_certificate(directory))
    return made


def secure(port: int) -> Line:
    """A client behind TLS."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return Line.on(made.wrap_socket(socket.create_connection(("127.0.0.1", port), WAITS_S)))


def plain(port: int) -> socket.socket:
    """A connection that has said nothing."""
    return socket.create_connection(("127.0.0.1", port), timeout=WAITS_S)


def ended(found: socket.socket) -> bool:
    """Wait until the server has ended a connection."""
    try:
        while found.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_clients_that_do_not_log_in_in_time_are_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent, amid a request, refused again and again: for all of them the time is the same."""
    listen = Listen(port=0, auth_timeout_s=IN_TIME_S)
    with serving(tmp_path / "store", listen=listen, password=SECRET) as served:
        with Line(served.port) as inside:
            assert inside("AUTH", SECRET) == b"OK"
            silent, amid, busy, again = (plain(served.port) for _ in range(4))
            amid.sendall(b"*2\r\n$4\r\nAUTH\r\n$8\r\na se")
            busy.sendall(b"PING\r\n")
            assert busy.recv(100).startswith(b"-NOAUTH")
            line = Line.on(again)
            assert line("AUTH", SECRET) == b"OK"
            assert line("RESET") == b"RESET"  # a stranger again
            assert all(map(ended, (silent, amid, busy, again)))
            assert inside("PING") == b"PONG"
            eventually(lambda: b"connected_clients:1\r\n" in inside("INFO", "clients"))
        eventually(lambda: not served.service.clients)
    told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told) == 1
    assert f"did not log in within {IN_TIME_S:g} s" in told[0]


def test_a_handshake_that_is_not_finished_is_cut(tmp_path: Path) -> None:
    """Also without a password; it holds no place afterwards."""
    listen = Listen(port=0, tls=context(tmp_path), handshake_timeout_s=IN_TIME_S)
    with serving(tmp_path / "store", listen=listen) as served:
        silent, begun = plain(served.port), plain(served.port)
        begun.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        rubbish = plain(served.port)
        rubbish.sendall(b"PING\r\n" * 10)
        with secure(served.port) as inside:
            assert inside("XADD", "s", "1-1", "a", b"x" * 100_000) == b"1-1"
            assert all(map(ended, (silent, begun, rubbish)))
            assert inside("XRANGE", "s", "-", "+") == [[b"1-1", [b"a", b"x" * 100_000]]]
            eventually(lambda: b"connected_clients:1\r\n" in inside("INFO", "clients"))


def test_requests_behind_auth_are_answered(tmp_path: Path) -> None:
    """In one piece, in pieces, with and without TLS: a client is in amid what it sent."""
    adds = b"".join(request([b"XADD", b"s", b"*", b"a", b"x" * 100]) for _ in range(2000))
    whole = request([b"AUTH", SECRET]) + adds + request([b"XLEN", b"s"]) + request([b"QUIT"])
    for tls in (None, context(tmp_path)):
        listen = Listen(port=0, tls=tls)
        path = tmp_path / ("plain" if tls is None else "secure")
        with serving(path, listen=listen, password=SECRET) as served:
            for size in (len(whole), 1000):
                with Line(served.port) if tls is None else secure(served.port) as line:
                    # Not from a thread: OpenSSL has one caller at a time. The replies find room.
                    for at in range(0, len(whole), size):
                        line.send(whole[at : at + size])
                    assert line.reply() == b"OK"
                    assert all(isinstance(line.reply(), bytes) for _ in range(2000))
                    assert line.reply() in (2000, 4000)
                    assert line.reply() == b"OK"
                    with pytest.raises(EOFError):
                        line.reply()


def test_strangers_have_a_part_of_the_places_and_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who comes with the password gets in while others hold all places that strangers may have."""
    monkeypatch.setattr(admission, "STAY_S", 0.2)
    with serving(tmp_path / "store", password=SECRET) as served:
        served.service.clients_max = 40
        silent = [plain(served.port) for _ in range(30)]
        for number in range(5):
            with Line(served.port) as line:
                assert line("AUTH", SECRET) == b"OK"
                told = line("INFO", "clients")
                connected = int(told.split(b"connected_clients:")[1].split(b"\r")[0])
                assert connected <= 11 + admission.ACCEPTS_STRANGERS, number
        assert served.service.counts.rejected > 0
        for each in silent:
            each.close()
        eventually(lambda: not served.service.clients)
    told = [each.message for each in caplog.records if "hold all places" in each.message]
    assert len(told) == 1


def test_at_the_limit_of_clients_newcomers_are_refused(tmp_path: Path, redis_peer: Peer) -> None:
    """At the limit; each that was refused is counted, and a place that gets free is given anew."""
    with serving(tmp_path / "store", password=SECRET) as served:
        served.service.clients_max = 5
        inside = [Line(served.port) for _ in range(5)]
        assert [line("AUTH", SECRET) for line in inside] == [b"OK"] * 5
        for _ in range(20):
            with Line(served.port) as line:
                assert line.reply() == Refusal("ERR max number of clients reached")
        assert [line("PING") for line in inside] == [b"PONG"] * 5
        assert b"rejected_connections:20\r\n" in inside[0]("INFO", "stats")
        assert b"total_connections_received:5\r\n" in inside[0]("INFO", "stats")
        inside.pop().close()
        eventually(lambda: len(served.service.clients) == 4)
        with Line(served.port) as line:
            assert line("AUTH", SECRET) == b"OK"
        for line in inside:
            line.close()
    theirs = redis_peer.command("INFO", "stats")
    assert b"rejected_connections:" in theirs
    assert b"acl_access_denied_auth:" in theirs


def test_silent_connections_cost_little(tmp_path: Path) -> None:
    """Nothing is made of TLS for one that has sent nothing, and little for one that has."""
    assert listening._Tls.max_size <= 32 * 1024
    listen = Listen(port=0, tls=context(tmp_path))
    with serving(tmp_path / "store", listen=listen, password=SECRET) as served:
        found = [plain(served.port) for _ in range(50)]
        eventually(lambda: len(served.service.clients) == 50)
        gc.collect()
        made = {type(each) for each in gc.get_objects()}
        assert listening._Tls not in made
        assert asyncio.selector_events._SelectorSocketTransport not in made  # type: ignore[attr-defined]
        for each in found:
            each.close()
        eventually(lambda: not served.service.clients)


@pytest.mark.parametrize("password", [b"", SECRET])
def test_client_kill_closes_at_once(tmp_path: Path, password: bytes) -> None:
    """Also one that is idle, and one that has not said anything."""
    with serving(tmp_path / "store", password=password) as served, Line(served.port) as line:
        if password:
            assert line("AUTH", password) == b"OK"
        silent = plain(served.port)
        eventually(lambda: len(served.service.clients) == 2)
        with Line(served.port) as idle:
            if password:
                assert idle("AUTH", password) == b"OK"
            assert idle("PING") == b"PONG"
            assert line("CLIENT", "KILL", "SKIPME", "yes") == 2
            with pytest.raises((EOFError, ConnectionError)):
                idle.reply()
        assert ended(silent)
        eventually(lambda: len(served.service.clients) == 1)


# -- the socket -----------------------------------------------------------------------------------
def test_a_living_servers_unix_socket_is_not_taken(tmp_path: Path) -> None:
    """It would never hear of it. What a dead one left is replaced, and a file is left alone."""
    path = tmp_path / "socket"
    listen = Listen(None, unix_socket=path)

    def asks() -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(100)

    with serving(tmp_path / "one", listen=listen):
        with pytest.raises(FileSystemError, match="another server listens on"):
            serving(tmp_path / "two", listen=listen).__enter__()
        assert asks() == b"+PONG\r\n"
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(tmp_path / "one", listen=listen):
        assert asks() == b"+PONG\r\n"
    path.write_text("mine")
    with pytest.raises(FileSystemError, match="is no socket"):
        serving(tmp_path / "one", listen=listen).__enter__()
    assert path.read_text() == "mine"
    with pytest.raises(FileSystemError, match="cannot listen on"):
        serving(
            tmp_path / "one", listen=Listen(None, unix_socket=tmp_path / "no" / "s")
        ).__enter__()


# -- logins ---------------------------------------------------------------------------------------
def test_failed_logins_are_counted_told_and_slow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / "store", password=SECRET) as served, Line(served.port) as line:
        waited = []
        for _ in range(4):
            begun = time.monotonic()
            assert line("AUTH", "someone\n", "a guess").startswith("WRONGPASS")
            waited.append(time.monotonic() - begun)
        assert [each >= 0.05 * 2**n for n, each in enumerate(waited)] == [True] * 4
        assert line("HELLO", "3", "AUTH", "default", "a guess").startswith("WRONGPASS")
        assert line("AUTH", SECRET) == b"OK"
        assert b"acl_access_denied_auth:5\r\n" in line("INFO", "stats")
    told = [each.message for each in caplog.records if "login failed" in each.message]
    assert len(told) == 1
    assert "'someone\\n'" in told[0]
    assert "127.0.0.1:" in told[0]
    assert "guess" not in caplog.text


def test_reset_ends_what_client_reply_said(tmp_path: Path, redis_peer: Peer) -> None:
    with serving(tmp_path / "store", profile="redis-8.2") as served:
        told = []
        for port in (served.port, redis_peer.port):
            with Line(port) as line:
                for mode in ("OFF", "SKIP"):
                    words = (f"CLIENT REPLY {mode}", "RESET", "ECHO behind", "CLIENT REPLY ON",
                             "ECHO end")  # fmt: skip
                    line.send(b"".join(request(each.encode().split()) for each in words))
                    found = [line.reply()]
                    while found[-1] != b"end":
                        found.append(line.reply())
                    told.append(found)
        assert told[:2] == told[2:]
        assert told[0][0] == b"RESET"


def test_a_password_file_that_others_can_read_gets_a_warning(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_bytes(SECRET)
    words = ["serve", tmp_path / "store", "--host", "192.0.2.1", "--port", "0",
             "--requirepass-file", secret]  # fmt: skip
    for mode, warned in ((0o640, True), (0o604, True), (0o600, False)):
        secret.chmod(mode)
        done = process(*words)  # which cannot listen there
        assert done.returncode != 0
        assert b"cannot listen on 192.0.2.1" in done.stderr
        assert (b"can be read by others" in done.stderr) == warned, done.stderr
        assert SECRET not in done.stderr


def test_a_certificate_without_its_key_asks_for_the_key(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    words = ["serve", tmp_path / "store", "--port", "0", "--tls-cert", certificate]
    done = process(*words)
    assert done.returncode == 1
    assert b"holds no private key: give its file with --tls-key" in done.stderr
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    words = [*words[:-1], both, "--host", "192.0.2.1", "--requirepass-file", key]
    assert b"cannot listen on 192.0.2.1" in process(*words).stderr  # it got so far


COUNT = 100


class Clock:
    """A clock that goes on when it is told to."""

    now_s = 0.0

    def perf_counter(self) -> float:
        """The time."""
        return self.now_s


def paused(monkeypatch: pytest.MonkeyPatch, ask: Callable[[Turns], object]) -> float:
    """How long turns of half a millisecond in all were paused, as a part of what they took."""
    clock, pauses = Clock(), []
    monkeypatch.setattr(turns, "time", clock)
    took_s = [0.0]

    async def run() -> None:
        loop, turns = asyncio.get_running_loop(), Turns()
        done = asyncio.Event()

        def later(delay_s: float, call: Callable[..., object], *given: object) -> None:
            pauses.append(delay_s)
            clock.now_s += delay_s
            loop.call_soon(call, *given)

        def work() -> None:
            clock.now_s += 0.0005
            took_s[0] += 0.0005
            ask(turns)
            if took_s[0] < 0.1:
                turns.ask(work)
            else:
                done.set()

        monkeypatch.setattr(loop, "call_later", later)
        turns.ask(work)
        await done.wait()

    asyncio.run(run())
    return sum(pauses) / took_s[0]


def test_a_quarter_of_the_time_is_theirs_while_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of many short turns; half of it while nobody else asks for anything."""
    assert 2.8 < paused(monkeypatch, Turns.others_ask) < 3.2
    assert 0.9 < paused(monkeypatch, bool) < 1.1


def test_the_loop_handles_a_few_ready_sockets_at_a_time() -> None:
    """Each is told once, and again when it is watched again; what is closed is not told."""
    told: list[int] = []

    async def run() -> None:
        watch = Watch(Turns())
        with ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(COUNT)]
            for number, (here, there) in enumerate(pairs):
                stack.enter_context(here)
                stack.enter_context(there)
                watch.watch(here, lambda number=number: told.append(number))  # type: ignore[misc]
                there.send(b"x")
            most = 0
            while len(told) < COUNT:
                before = len(told)
                await asyncio.sleep(0)  # once around the loop
                most = max(most, len(told) - before)
            assert 0 < most <= ROUND_TURNS
            assert sorted(told) == list(range(COUNT))
            told.clear()
            watch.forget(pairs[2][0])
            for number in (1, 2):
                pairs[number][0].close()
            watch.watch(pairs[3][0], lambda: told.append(3))
            while not told:
                await asyncio.sleep(0)
            assert told == [3]
        watch.close()

    asyncio.run(run())
