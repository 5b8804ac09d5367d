"""Prevents the server from serving otherwise on uvloop, which ``logstore serve`` takes if it can.

Its transports are of no class of asyncio; what is paused, cut or not read goes other ways there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.waits import eventually
from tests.wire.collected import xadd
from tests.wire.lines import Absent, Line, request
from tests.wire.served import Served, serving

ADDS = 3000  # whose replies are more than a transport takes at once
READS = 300
AMID_WAIT_S = 0.02  # a wrong password is answered after 50 ms at the least


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a password, on uvloop."""
    loops = pytest.importorskip("uvloop")
    path = tmp_path_factory.mktemp("loops") / "store"
    with serving(path, loop_factory=loops.new_event_loop, password=b"secret") as found:
        yield found


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    """A client that is in."""
    with Line(served.port) as found:
        assert found("AUTH", "secret") == b"OK"
        found("DEL", "s")
        yield found


def test_a_stranger_is_let_in_with_the_password(served: Served) -> None:
    with Line(served.port) as line:
        assert line("XLEN", "s").startswith("NOAUTH")
        assert line("AUTH", "wrong").startswith("WRONGPASS")
        line.send(request([b"AUTH", b"secret"]) + request(xadd(b"s", b"1")))
        assert line.reply() == b"OK"
        assert b"-" in line.reply()
        assert line("RESET") == b"RESET"
        assert line("XLEN", "s").startswith("NOAUTH")


def test_requests_are_answered_in_their_order(line: Line) -> None:
    add, size = request(xadd(b"s", b"1")), request([b"XLEN", b"s"])
    wait = request([b"XREAD", b"BLOCK", b"1", b"STREAMS", b"none", b"$"])
    line.send(add + size + add * 2 + wait + size + add)
    replies = [line.reply() for _ in range(7)]
    ids = [reply for reply in replies if isinstance(reply, bytes)]
    assert len(ids) == 4
    assert [replies[1], replies[4], replies[5]] == [1, Absent(), 3]
    for _ in range(3):
        assert b"-" in line("XADD", "s", "*", "n", "1")


def test_a_client_that_is_killed_is_cut(served: Served, line: Line) -> None:
    with Line(served.port) as killed:
        assert killed("AUTH", "secret") == b"OK"
        number = killed("CLIENT", "ID")
        assert line("CLIENT", "KILL", "ID", number) == 1
        eventually(lambda: number not in served.service.clients)
        with pytest.raises((EOFError, ConnectionError)):
            killed("XADD", "s", "*", "n", "1")
    assert line("XLEN", "s") == 0


def test_replies_that_are_not_read_wait_for_their_reader(line: Line) -> None:
    line("XADD", "s", "*", "n", "x" * 60_000)
    line.send(request([b"XRANGE", b"s", b"-", b"+"]) * READS + request(xadd(b"s", b"1")) * ADDS)
    assert all(len(line.reply()) == 1 for _ in range(READS))
    ids = [tuple(map(int, line.reply().split(b"-"))) for _ in range(ADDS)]
    assert ids == sorted(set(ids))
    assert line("XLEN", "s") == ADDS + 1


def test_a_client_that_goes_amid_a_request_takes_nothing_along(served: Served, line: Line) -> None:
    with Line(served.port) as going:
        assert going("AUTH", "secret") == b"OK"
        number = going("CLIENT", "ID")
        going.send(request(xadd(b"s", b"1"))[:-4])
    eventually(lambda: number not in served.service.clients)
    assert line("XLEN", "s") == 0


def test_requests_during_a_delayed_wrong_password_are_answered(served: Served) -> None:
    """The transport may have read it then: that of uvloop reads although it was told to pause."""
    with Line(served.port) as line:
        line.send(request([b"AUTH", b"wrong"]))
        time.sleep(AMID_WAIT_S)
        line.send(request([b"XLEN", b"s"]))
        assert line.reply().startswith("WRONGPASS")
        assert line.reply().startswith("NOAUTH")
        line.send(request([b"AUTH", b"wrong"]))
        time.sleep(AMID_WAIT_S)
        line.send(request([b"AUTH", b"secret"]) + request([b"XLEN", b"s"]))
        assert line.reply().startswith("WRONGPASS")
        assert line.reply() == b"OK"
        assert isinstance(line.reply(), int)


def test_a_client_that_ends_during_a_delayed_wrong_password_is_answered(served: Served) -> None:
    with Line(served.port) as line:
        line.send(request([b"AUTH", b"wrong"]))
        time.sleep(AMID_WAIT_S)
        line.end()
        assert line.reply().startswith("WRONGPASS")
        with pytest.raises((EOFError, ConnectionError)):
            line.reply()
