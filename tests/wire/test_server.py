"""Prevents a server that hangs, loses a reply, wakes nobody, or opens itself to strangers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_args

import pytest
import redis
import valkey

import logstore
from logstore.errors import UsageError
from logstore.options import Profile
from logstore.wire.catalogue import users_of
from logstore.wire.server import server
from logstore.wire.server.server import Listen
from tests.peers.servers import Peer
from tests.tools.commands import COMMAND, environment
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import Served, serving


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "store", allow_flush=True) as found:
        yield found


def test_a_pipeline_is_answered_in_order_and_is_few_commits(served: Served) -> None:
    with Line(served.port) as line:
        commits = served.service.store.metrics()["commits"]
        words = [(b"XADD", b"s", b"*", b"n", b"%d" % n) for n in range(500)]
        line.send(b"".join(map(request, words)) + request([b"XLEN", b"s"]))
        ids = [line.reply() for _ in words]
        assert ids == sorted(set(ids), key=lambda each: tuple(map(int, each.split(b"-"))))
        assert line.reply() == 500
        assert served.service.store.metrics()["commits"] - commits <= 20
        values = [entry[1][1] for entry in line("XRANGE", "s", "-", "+")]
        assert values == [b"%d" % n for n in range(500)]


def test_a_refused_command_touches_none_of_its_neighbours(served: Served) -> None:
    with Line(served.port) as line:
        words = [
            (b"XADD", b"s", b"5-0", b"a", b"1"), (b"XADD", b"s", b"5-0", b"a", b"2"),
            (b"NOSUCH",), (b"XADD", b"s", b"6-0", b"a", b"3"), (b"XLEN", b"s"),
            (b"XADD", b"s", b"x", b"a", b"3"), (b"XLEN", b"s"),
        ]  # fmt: skip
        line.send(b"".join(map(request, words)))
        found = [line.reply() for _ in words]
        assert [isinstance(each, Refusal) for each in found] == [
            False, True, True, False, False, True, False,
        ]  # fmt: skip
        assert found[3:5] == [b"6-0", 2]
        assert found[6] == 2


def test_a_reader_waits_and_is_woken_by_another_process(served: Served, tmp_path: Path) -> None:
    adding = (
        "import sys, logstore\n"
        "with logstore.open(sys.argv[1]) as store:\n"
        "    sys.stdin.read(1)\n"
        "    store.stream('s').add({'a': '1'}, id='7-0')\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", adding, str(tmp_path / "store")], stdin=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    with Line(served.port) as line, Line(served.port) as second:
        line.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"t", b"0", b"0"]))
        assert second("XGROUP", "CREATE", "t", "g", "$", "MKSTREAM") == b"OK"
        second.send(request([b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"30000", b"STREAMS",
                             b"t", b">"]))  # fmt: skip
        assert other.stdin is not None
        other.communicate(b"x", timeout=60)
        assert line.reply() == [[b"s", [[b"7-0", [b"a", b"1"]]]]]
        assert line("XADD", "t", "1-0", "b", "2") == b"1-0"
        assert second.reply() == [[b"t", [[b"1-0", [b"b", b"2"]]]]]


def test_a_read_that_blocks_ends_at_its_time_and_not_before(served: Served) -> None:
    with Line(served.port) as line:
        started = time.monotonic()
        assert line("XREAD", "BLOCK", "250", "STREAMS", "s", "$") == Absent()
        assert time.monotonic() - started >= 0.25
        assert line("PING") == b"PONG"


def test_unblock_kill_and_the_names_of_clients(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SLICE_S", 60.0)  # who is not woken would not look in time
    with Line(served.port) as one, Line(served.port) as two:
        number = one("CLIENT", "ID")
        assert one("CLIENT", "SETNAME", "worker") == b"OK"
        one.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]))
        while not two("CLIENT", "UNBLOCK", number):
            time.sleep(0.01)
        assert one.reply() == Absent()
        one.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]))
        while not two("CLIENT", "UNBLOCK", number, "ERROR"):
            time.sleep(0.01)
        assert str(one.reply()).startswith("UNBLOCKED")
        assert b"name=worker" in two("CLIENT", "LIST", "ID", number)
        assert two("CLIENT", "KILL", "ID", number) == 1
        with pytest.raises((EOFError, ConnectionError)):
            one("PING")


def test_in_a_group_waiters_are_served_in_the_order_they_came(served: Served) -> None:
    lines = [Line(served.port) for _ in range(5)]
    with Line(served.port) as adder:
        adder("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for place, line in enumerate(lines):
            line.send(request([b"XREADGROUP", b"GROUP", b"g", b"c%d" % place, b"COUNT", b"1",
                               b"BLOCK", b"30000", b"STREAMS", b"s", b">"]))  # fmt: skip
            while b"cmd=xreadgroup" not in adder("CLIENT", "LIST", "ID", served_id(served, place)):
                time.sleep(0.005)
            time.sleep(0.05)
        for place, line in enumerate(lines):
            adder("XADD", "s", f"{place + 1}-0", "n", place)
            assert line.reply()[0][1][0][0] == b"%d-0" % (place + 1)
            line.close()


def test_consumers_that_wait_are_known_at_once(served: Served, peer: Peer) -> None:
    words = [b"XREADGROUP", b"GROUP", b"g", b"", b"BLOCK", b"30000", b"STREAMS", b"s", b">"]

    def known(port: int) -> list[bytes]:
        with Line(port) as one, Line(port) as two, Line(port) as looks:
            looks("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
            for line, words[3] in ((one, b"first"), (two, b"second")):
                line.send(request(words))
                deadline = time.monotonic() + 60
                while words[3] not in (
                    names := [row[1] for row in looks("XINFO", "CONSUMERS", "s", "g")]
                ):
                    assert time.monotonic() < deadline, names
                    time.sleep(0.01)
            looks("XADD", "s", "1-0", "a", "1")
            assert one.reply()[0][1][0][0] == b"1-0"
            return names

    assert known(served.port) == known(peer.port) == [b"first", b"second"]


def test_the_flags_of_clients_are_the_peers(served: Served, peer: Peer) -> None:
    def flags(port: int) -> list[bytes]:
        with Line(port) as one, Line(port) as looks:
            number = one("CLIENT", "ID")

            def shown() -> bytes:
                line = looks("CLIENT", "LIST", "ID", number)
                return dict(word.split(b"=", 1) for word in line.split())[b"flags"]

            told = [shown()]
            for words in (
                "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON", "CLIENT NO-EVICT OFF", "MULTI",
                "DISCARD", "CLIENT NO-EVICT ON", "RESET", "CLIENT NO-TOUCH x",
            ):  # fmt: skip
                one(*words.split())
                told.append(shown())
            one.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"none", b"$"]))
            deadline = time.monotonic() + 60
            while shown() == b"N" and time.monotonic() < deadline:
                time.sleep(0.01)
            return [*told, shown()]

    found = flags(served.port)
    assert found == flags(peer.port)
    assert found[1:3] == [b"e", b"eT"]


def served_id(served: Served, place: int) -> int:
    """The number of the connection that came at this place."""
    return sorted(served.service.clients)[place]


def test_a_transaction_is_one_commit_and_sees_itself(served: Served) -> None:
    with Line(served.port) as line, Line(served.port) as other:
        assert line("WATCH", "s") == b"OK"
        assert line("MULTI") == b"OK"
        for words in (
            ("XADD", "s", "1-0", "a", "1"), ("XLEN", "s"), ("XADD", "s", "1-0", "a", "1"),
            ("XRANGE", "s", "-", "+"), ("XREAD", "BLOCK", "0", "STREAMS", "s", "$"),
        ):  # fmt: skip
            assert line(*words) == b"QUEUED"
        assert other("XLEN", "s") == 0
        found = line("EXEC")
        assert found[:2] == [b"1-0", 1]
        assert isinstance(found[2], Refusal)
        assert found[3:] == [[[b"1-0", [b"a", b"1"]]], Absent()]
        assert line("WATCH", "s") == b"OK"
        assert other("XADD", "s", "2-0", "a", "1") == b"2-0"
        line("MULTI")
        line("XADD", "s", "3-0", "a", "1")
        assert line("EXEC") == Absent()
        assert line("XLEN", "s") == 2
        line("MULTI")
        assert isinstance(line("NOSUCH"), Refusal)
        line("XADD", "s", "3-0", "a", "1")
        assert line("EXEC").startswith("EXECABORT")
        assert line("XLEN", "s") == 2


def test_garbage_ends_one_connection_and_no_other(served: Served) -> None:
    with Line(served.port) as good:
        for rubbish in (b"*-x\r\n", b"*1\r\n$-5\r\n", b"\x00" * 70_000, b"*1\r\n$3\r\nab"):
            with Line(served.port) as bad:
                bad.send(request([b"XADD", b"s", b"*", b"a", b"b"]) + rubbish)
                assert isinstance(bad.reply(), bytes)
                if rubbish != b"*1\r\n$3\r\nab":
                    assert "Protocol error" in bad.reply()
                    with pytest.raises((EOFError, ConnectionError)):
                        bad("PING")
        assert good("XLEN", "s") == 4


def test_a_client_that_does_not_read_or_asks_too_much_is_sent_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the server's memory."""
    with Line(served.port) as good:
        assert good("XADD", "s", "1-1", "a", b"x" * 400_000) == b"1-1"
        monkeypatch.setattr(server, "OUTPUT_MAX_BYTES", 100_000)
        with Line(served.port) as deaf:
            deaf.send(request([b"XRANGE", b"s", b"-", b"+"]) * 100)
            time.sleep(1)
            with pytest.raises((EOFError, ConnectionError, AssertionError)):  # amid a reply
                _ = [deaf.reply() for _ in range(100)]
        monkeypatch.setattr(server, "QUERY_MAX_BYTES", 100_000)
        with Line(served.port) as greedy:
            greedy.send(b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$900000\r\n" + b"x" * 200_000)
            with pytest.raises((EOFError, ConnectionError)):
                greedy.reply()
        assert good("XLEN", "s") == 1


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path / "store", password=b"secret") as served, Line(served.port) as line:
        assert line("XLEN", "s").startswith("NOAUTH")
        assert line("AUTH", "wrong").startswith("WRONGPASS")
        assert line("AUTH", "default", "secret") == b"OK"
        assert line("XLEN", "s") == 0
        with redis.Redis(port=served.port, password="secret") as client:
            assert client.ping()
        with pytest.raises(redis.AuthenticationError), redis.Redis(port=served.port) as client:
            client.ping()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_beyond_loopback_only_with_a_password(host: str) -> None:
    with pytest.raises(UsageError, match="requirepass-file"):
        Listen(host).check(users_of("redis-8.2"))
    Listen(host).check(users_of("redis-8.2", b"x"))


@pytest.mark.parametrize("protocol", [2, 3])
def test_clients_connect_as_they_are(served: Served, protocol: int) -> None:
    for made in (redis.Redis, valkey.Valkey):
        with made(port=served.port, protocol=protocol, decode_responses=True) as client:
            client.flushall()
            id = client.xadd("race:france", {"rider": "Castilla", "speed": 30.2})
            assert client.xrange("race:france") == [(id, {"rider": "Castilla", "speed": "30.2"})]
            assert client.info("server")["redis_version"]
            assert client.config_get("stream-node-max-*")["stream-node-max-entries"] == "100"
            assert client.client_list()[0]["lib-name"]
            assert list(client.scan_iter("race:*", _type="stream")) == ["race:france"]
            with client.pipeline(transaction=True) as pipe:
                pipe.xadd("out", {"a": 1}, id="5-0")
                pipe.xlen("out")
                assert pipe.execute() == ["5-0", 1]
            assert client.command_count() > 50
            assert client.memory_usage("out")


def test_a_client_that_comes_back_finds_what_was_acknowledged(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", str(tmp_path / "store"), "--port", "0", "--sync", "always"]
    for round_ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as running:
            assert running.stdout is not None
            port = int(running.stdout.readline().rsplit(b":", 1)[1])
            with Line(port) as line:
                assert line("XLEN", "s") == round_
                assert line("XADD", "s", "*", "n", round_)
            running.send_signal(signal.SIGKILL if round_ == 0 else signal.SIGTERM)
            assert running.wait(60) == (-signal.SIGKILL if round_ == 0 else 0)
    with logstore.open(tmp_path / "store") as store:
        assert [entry.fields["n"] for entry in store.stream("s")] == [b"0", b"1"]


def test_many_idle_clients_hold_no_threads(served: Served) -> None:
    lines = [Line(served.port) for _ in range(200)]
    before = threading.active_count()
    for line in lines:
        line.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]))
    with Line(served.port) as adder:
        while adder("INFO", "clients").count(b"blocked_clients:200") == 0:
            time.sleep(0.01)
        assert threading.active_count() <= before + 8
        adder("XADD", "s", "1-0", "a", "1")
        for line in lines:
            assert line.reply() == [[b"s", [[b"1-0", [b"a", b"1"]]]]]
            line.close()


def test_the_server_listens_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with (
        serving(tmp_path / "store", listen=Listen(None, unix_socket=path)),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"


@pytest.mark.parametrize(("words", "mode"), [((), 0o700), (("--unixsocket-mode", "770"), 0o770)])
def test_permissions_of_the_unix_socket(tmp_path: Path, words: tuple[str, ...], mode: int) -> None:
    """As the umask says, or as is asked for: members of a group could not, under a unit's umask."""
    path = tmp_path / "socket"
    command = [*COMMAND, "serve", str(tmp_path / "store"), "--port", "0", "--unixsocket", str(path)]
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, env=environment(), umask=0o077
    ) as running:
        assert running.stdout is not None
        assert b"is served on" in running.stdout.readline()
        assert path.stat().st_mode & 0o777 == mode
        running.terminate()


@pytest.mark.parametrize("mode", ["", "7", "0o770", "999", "1770", "-770", "rwx"])
def test_a_mode_that_is_none_is_refused(tmp_path: Path, mode: str) -> None:
    command = [*COMMAND, "serve", str(tmp_path / "store"), "--unixsocket-mode", mode]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 2
    assert "give three octal digits" in done.stderr
    assert not (tmp_path / "store").exists()


def test_every_profile_can_be_served() -> None:
    """The command once did not know one that its manual names."""
    command = [*COMMAND, "serve", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert all(name in done.stdout.replace("\n", "") for name in get_args(Profile))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_unix_socket_goes_with_its_server(tmp_path: Path, number: int) -> None:
    path, line = tmp_path / "socket", b"is served on"
    command = [*COMMAND, "serve", str(tmp_path / "store"), "--port", "0", "--unixsocket", str(path)]
    for each in (signal.SIGKILL, number):  # what the first one leaves does not keep the second out
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as running:
            assert running.stdout is not None
            assert line in running.stdout.readline()
            assert path.is_socket()
            running.send_signal(each)
            running.wait(30)
        assert path.exists() == (each == signal.SIGKILL)


def test_the_socket_of_another_server_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other:
        with serving(tmp_path / "store", listen=Listen(None, unix_socket=path)):
            path.unlink()
            other.bind(str(path))
        assert path.is_socket()
