"""Prevents a server whose threads or memory grow with clients that only wait, or that serves the
others no more, wakes some of them not, or gives entries to those that are gone.
"""

from __future__ import annotations

import resource
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore.wire.server.server import THREADS
from tests.peers.servers import Peer
from tests.support.waits import eventually
from tests.tools.commands import COMMAND, environment
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import Served
from tests.wire.wired import InProcess

CLIENTS = 2000
BLOCKED = CLIENTS // 2
FILES = CLIENTS + 500
WAITS_S = 60
EACH_MAX_KIB = 64


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many files for this process, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < FILES:
        pytest.skip(f"the system allows {hard} open files, and {FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def status(pid: int) -> dict[str, int]:
    """Numbers that Linux tells of a process."""
    path = Path(f"/proc/{pid}/status")
    if not path.exists():
        pytest.skip("needs /proc/PID/status, which Linux has")
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def until(line: Line, told: str) -> None:
    """Wait until INFO tells it."""
    eventually(lambda: told.encode() + b"\r\n" in line("INFO", "clients"))


def block(readers: list[Line], workers: list[Line]) -> None:
    """Half read a stream, half are consumers of a group."""
    for line in readers:
        line.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"news", b"$"]))
    for place, line in enumerate(workers):
        line.send(request([b"XREADGROUP", b"GROUP", b"g", b"c%d" % place, b"COUNT", b"1",
                           b"BLOCK", b"0", b"STREAMS", b"work", b">"]))  # fmt: skip


def test_two_thousand_wait_and_others_are_served(
    many_files: None, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    server = InProcess(tmp_path / "store", "redis-8.2")
    with Line(server.port) as other:
        assert other("XGROUP", "CREATE", "work", "g", "$", "MKSTREAM") == b"OK"
        first = [Line(server.port) for _ in range(20)]
        block(first[:10], first[10:])
        until(other, "blocked_clients:20")
        few = status(server.pid)
        idle = [Line(server.port) for _ in range(CLIENTS - BLOCKED)]
        until(other, f"connected_clients:{len(idle) + 21}")
        connected = status(server.pid)
        more = [Line(server.port) for _ in range(BLOCKED - 20)]
        readers = first[:10] + more[: BLOCKED // 2 - 10]
        workers = first[10:] + more[BLOCKED // 2 - 10 :]
        block(readers[10:], workers[10:])
        until(other, f"connected_clients:{CLIENTS + 1}")
        until(other, f"blocked_clients:{BLOCKED}")
        full = status(server.pid)

        assert other("PING") == b"PONG"
        assert other("XADD", "apart", "1-1", "a", "1") == b"1-1"
        assert other("XRANGE", "apart", "-", "+") == [[b"1-1", [b"a", b"1"]]]
        # The two pools grow to their size as work comes, and no client has a thread of its own.
        assert max(connected["Threads"], full["Threads"]) < few["Threads"] + 2 * THREADS
        each_idle = (connected["RssAnon"] - few["RssAnon"]) / len(idle)
        each_waiting = (full["RssAnon"] - connected["RssAnon"]) / len(more)
        tell(
            f"{CLIENTS:,} clients, half of them in XREAD or XREADGROUP BLOCK: "
            f"{full['Threads']} threads, {each_idle:.1f} KiB for each that is connected, "
            f"{each_waiting:.1f} KiB for each that waits"
        )
        assert max(each_idle, each_waiting) < EACH_MAX_KIB

        assert other("XADD", "news", "1-1", "a", "1") == b"1-1"
        assert [line.reply() for line in readers] == [
            [[b"news", [[b"1-1", [b"a", b"1"]]]]] for _ in readers
        ]
        adds = [request([b"XADD", b"work", b"%d-0" % n, b"n", b"1"]) for n in range(1, 501)]
        assert len(adds) == len(workers)
        other.send(b"".join(adds))
        given = [line.reply()[0][1] for line in workers]
        assert sorted(int(rows[0][0].split(b"-")[0]) for rows in given) == list(range(1, 501))
        assert {len(rows) for rows in given} == {1}
        assert [other.reply() for _ in adds] == [b"%d-0" % n for n in range(1, 501)]
        for line in idle:
            line.send(request([b"PING"]))
        assert [line.reply() for line in idle] == [b"PONG"] * len(idle)

        block(readers[250:], workers[250:])
        for line in (*readers[:250], *workers[:250], *workers[400:]):
            line.close()
        until(other, f"connected_clients:{CLIENTS + 1 - 600}")
        until(other, f"blocked_clients:{BLOCKED - 600}")
        assert status(server.pid)["Threads"] <= few["Threads"] + 2 * THREADS
    server.stop()  # by SIGTERM, with those that are left; it asserts that all is well
    for line in (*idle, *readers[250:], *workers[250:400]):
        with pytest.raises((EOFError, ConnectionError)):
            line.reply()
        line.close()


def test_the_server_ends_also_while_all_clients_go(many_files: None, tmp_path: Path) -> None:
    """A signal is not lost among the wake-ups."""
    server = InProcess(tmp_path / "store", "redis-8.2")
    lines = [Line(server.port) for _ in range(BLOCKED)]
    block(lines, [])
    with Line(server.port) as other:
        until(other, f"blocked_clients:{BLOCKED}")
        for line in lines:
            line.close()
    time.sleep(0.02)
    server.stop()


def test_a_gone_client_is_given_nothing(served: Served, redis_peer: Peer) -> None:
    told = []
    for port in (served.port, redis_peer.port):
        with Line(port) as other, Line(port) as stays:
            assert other("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM") == b"OK"
            words = [b"XREADGROUP", b"GROUP", b"g", b"gone", b"BLOCK", b"0", b"STREAMS", b"s", b">"]
            goes = Line(port)
            goes.send(request(words) + request([b"XADD", b"behind", b"*", b"a", b"1"]))
            until(other, "blocked_clients:1")
            words[3] = b"stays"
            stays.send(request(words))
            until(other, "blocked_clients:2")
            goes.close()
            until(other, "blocked_clients:1")
            assert other("XADD", "s", "1-1", "a", "1") == b"1-1"
            told.append([stays.reply(), other("XPENDING", "s", "g"), other("XLEN", "behind")])
    assert told[0] == told[1]


def test_a_half_closed_blocking_read_is_answered_at_once(served: Served, redis_peer: Peer) -> None:
    """A read that blocks, and the end: what is there is told, what is not is not waited for."""
    told = []
    for port in (served.port, redis_peer.port):
        with Line(port) as line:
            line("XADD", "s", "1-1", "a", "1")
        for start in (b"0", b"$"):
            with Line(port) as line:
                line.send(request([b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", start]))
                line._socket.shutdown(1)
                try:
                    told.append(line.reply())
                except EOFError:
                    told.append("nothing")
    assert told[:2] == told[2:] == [[[b"s", [[b"1-1", [b"a", b"1"]]]]], "nothing"]


@pytest.mark.parametrize("hard", [None, 600])
def test_the_server_makes_room_for_its_clients(
    many_files: None, tmp_path: Path, hard: int | None
) -> None:
    """A shell allows few files; where no more can be had, clients are refused, not left waiting."""
    limit = "ulimit -Sn 256" if hard is None else f"ulimit -n {hard}"
    command = [
        "sh", "-c", f'{limit}; exec "$@"', "sh", *COMMAND, "serve", str(tmp_path / "store"),
        "--port", "0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as running:
        try:
            assert running.stdout is not None
            port = int(running.stdout.readline().rsplit(b":", 1)[1])
            lines = [Line(port) for _ in range(400)]
            for line in lines:
                line.send(request([b"PING"]))
            replies = [_first(line) for line in lines]
        finally:
            running.terminate()
    refused = [each for each in replies if isinstance(each, Refusal | Absent)]
    assert len(refused) == (0 if hard is None else 400 - (hard - 512))
    assert all("max number of clients" in str(each) for each in refused)
    for line in lines:
        line.close()


def _first(line: Line) -> object:
    assert select.select([line._socket], [], [], WAITS_S)[0]
    try:
        return line.reply()
    except ConnectionError:  # it was refused, and what it had sent was not read
        return Refusal("max number of clients")
