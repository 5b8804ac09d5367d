"""Prevents clients that share a commit from being told too early, out of order, or of each other.

LOCK is held from outside where many are to be in one commit: the first waits for it in a thread,
and what comes meanwhile is collected.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import OpenStore, opened_of
from logstore.engine.lane.lane_loading import native_or_none
from logstore.wire.catalogue import service_of
from logstore.wire.log_limiter import Seldom
from logstore.wire.resp import reply as replies_module
from logstore.wire.resp.outgoing import ConnectionCut, Output, OutputBytes
from logstore.wire.resp.requests import RequestParser
from logstore.wire.server import held_adds
from logstore.wire.service import Service
from logstore.wire.session import Session
from logstore.wire.steps import CommandStep
from logstore.wire.together import ClientSteps
from tests.support.inside import lane_commits
from tests.support.threads import run_all
from tests.support.waits import eventually
from tests.tools.commands import environment
from tests.wire.collected import _SENT, SOON_S, collected, send, xadd
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import Served, serving

CLIENTS = 12


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server whose clients wait long for LOCK."""
    with serving(tmp_path / "store", store={"lock_timeout": 600.0}) as found:
        yield found


@pytest.fixture(autouse=True)
def _together_however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_adds, "TOGETHER_NS", 1 << 62)
    monkeypatch.setattr("logstore.wire.together.COMMIT_S", 600.0)


@pytest.fixture
def lines(served: Served) -> Iterator[list[Line]]:
    """Some clients."""
    with ExitStack() as stack:
        yield [stack.enter_context(Line(served.port)) for _ in range(CLIENTS)]


def commits(served: Served) -> int:
    """Of the store so far."""
    return opened_of(served.service.store).engine().wake.log().commit


def test_adds_of_clients_during_a_commit_share_the_next(served: Served, lines: list[Line]) -> None:
    assert lines[0]("XADD", "s", "*", "n", "0")
    before = commits(served)
    with collected(served):
        for number, line in enumerate(lines):
            send(served, line, xadd(b"s", b"%d" % number), xadd(b"s%d" % number, b"1"))
    ids = [(line.reply(), line.reply())[0] for line in lines]
    assert commits(served) - before <= 2  # the first, and all others
    found = {id: fields[1] for id, fields in lines[0]("XRANGE", "s", "-", "+")}
    assert [found[id] for id in ids] == [b"%d" % number for number in range(CLIENTS)]
    assert all(lines[0]("XLEN", f"s{number}") == 1 for number in range(CLIENTS))


def test_plain_adds_of_one_turn_are_one_commit(
    served: Served, lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    for line, name in product(lines, (b"s", b"t")):  # until the lane knows the streams
        line(*xadd(name, b"0"))
    handed = list[int]()
    add_each = OpenStore.add_each_plain

    def noted(self: Any, entries: list[Any], told: list[Any]) -> None:
        handed.append(len(entries))
        add_each(self, entries, told)

    monkeypatch.setattr(OpenStore, "add_each_plain", noted)
    before, taken = commits(served), lane_commits(served.service.store)
    served.hold_up(0.3)
    for number, line in enumerate(lines):
        line.send(request(xadd(b"st"[number % 2 : number % 2 + 1], b"%d" % number)))
    ids = [line.reply() for line in lines]
    assert max(handed) >= CLIENTS - 1  # the first may have come alone
    assert commits(served) - before <= 2
    assert taken or native_or_none is None  # without compiled code they were handed in
    for key, first in (("s", 0), ("t", 1)):
        found = {id: fields[1] for id, fields in lines[0]("XRANGE", key, "-", "+")}
        wanted = [b"%d" % number for number in range(first, CLIENTS, 2)]
        assert [found[id] for id in ids[first::2]] == wanted


def test_adds_of_one_turn_that_are_not_plain_are_answered_as_if_alone(
    served: Served, lines: list[Line]
) -> None:
    for line in lines:
        line(*xadd(b"s", b"0"))
    assert lines[0]("XADD", "top", "18446744073709551615-18446744073709551615", "n", "0")
    served.hold_up(0.3)
    for number, line in enumerate(lines):
        key = {1: b"top", 4: b"new", 7: b"new"}.get(number, b"s")
        line.send(request(xadd(key, b"x" * 100_000 if number == 5 else b"%d" % number)))
        line.send(request([b"XLEN", key]))  # behind it, and it sees it
    replies = [(line.reply(), line.reply()) for line in lines]
    assert [isinstance(added, Refusal) for added, _ in replies] == [
        number == 1 for number in range(CLIENTS)
    ]
    assert replies[1][1] == 1
    assert {replies[4][1], replies[7][1]} <= {1, 2}
    assert lines[0]("XLEN", "new") == 2
    assert lines[0]("XLEN", "s") == CLIENTS + CLIENTS - 3
    assert min(length for number, (_, length) in enumerate(replies) if number not in (1, 4, 7)) > 12


def test_a_client_that_goes_while_its_add_is_held_leaves_the_others_alone(
    served: Served, lines: list[Line]
) -> None:
    for line in lines:
        line(*xadd(b"s", b"0"))
    served.hold_up(0.3)
    for number, line in enumerate(lines):
        line.send(request(xadd(b"s", b"%d" % number)))
        if number % 3 == 2:
            line.close()
    left = [line for number, line in enumerate(lines) if number % 3 != 2]
    ids = [line.reply() for line in left]
    found = {id for id, _ in left[0]("XRANGE", "s", "-", "+")}
    assert set(ids) <= found
    assert len(set(ids)) == len(left)


def test_a_neighbour_that_is_refused_leaves_the_others_alone(
    served: Served, lines: list[Line]
) -> None:
    assert lines[0]("XADD", "s", "5-0", "n", "0")
    with collected(served):
        for number, line in enumerate(lines):
            wrong = number % 3 == 1
            send(
                served, line,
                xadd(b"s", b"%d" % number, b"1-1" if wrong else b"*"),
                [b"XGROUP", b"CREATE", b"none" if wrong else b"s", b"g%d" % number, b"0"],
                xadd(b"t", b"%d" % number),
            )  # fmt: skip
    for number, line in enumerate(lines):
        wrong = number % 3 == 1
        found = [line.reply() for _ in range(3)]
        assert [isinstance(each, Refusal) for each in found] == [wrong, wrong, False]
    right = sum(number % 3 != 1 for number in range(CLIENTS))
    assert lines[0]("XLEN", "s") == 1 + right
    assert lines[0]("XLEN", "t") == CLIENTS
    assert len(lines[0]("XINFO", "GROUPS", "s")) == right


def test_replies_come_in_the_order_of_each_clients_requests(served: Served) -> None:
    def ask(name: bytes, found: list[object]) -> None:
        with Line(served.port) as line:
            for _ in range(20):
                line.send(
                    request(xadd(name, b"1")) + request([b"XLEN", name]) + request([b"PING"])
                    + request(xadd(name, b"2", b"0-1")) + request(xadd(b"all", name))
                )  # fmt: skip
                found += [line.reply() for _ in range(5)]

    found: list[list[object]] = [[] for _ in range(CLIENTS)]
    threads = [
        threading.Thread(target=ask, args=(b"o%d" % number, each))
        for number, each in enumerate(found)
    ]
    run_all(threads, SOON_S)
    for each in found:
        assert each[1::5] == list(range(1, 21))
        assert each[2::5] == [b"PONG"] * 20
        assert all(isinstance(reply, Refusal) for reply in each[3::5])
        ids = [tuple(map(int, str(reply, "ascii").split("-"))) for reply in each[4::5]]  # type: ignore[call-overload]
        assert ids == sorted(ids)
    with Line(served.port) as line:
        assert line("XLEN", "all") == 20 * CLIENTS


def test_a_long_read_of_one_client_does_not_hold_up_who_writes(served: Served) -> None:
    with Line(served.port) as reader, Line(served.port) as writer:
        value = os.urandom(500)
        reader.send(b"".join(request(xadd(b"s", value)) for _ in range(40_000)))
        for _ in range(40_000):
            reader.reply()
        reader.send(request([b"XRANGE", b"s", b"-", b"+"]))  # and it does not read the reply yet
        for number in range(50):
            assert isinstance(writer("XADD", "t", "*", "n", number), bytes)
        assert len(reader.reply()) == 40_000


def test_each_request_has_its_own_lock_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_adds, "TOGETHER_NS", 100_000_000)
    with (
        serving(tmp_path / "store", store={"lock_timeout": 6.0}) as served,
        Line(served.port) as first, Line(served.port) as second, Line(served.port) as third,
    ):  # fmt: skip
        assert first("XADD", "s", "*", "n", "0")
        with (tmp_path / "store" / "LOCK").open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            first.send(request(xadd(b"s", b"1")))
            time.sleep(0.2)
            second.send(request(xadd(b"s", b"2")))
            time.sleep(3.8)
            third.send(request(xadd(b"s", b"3")))
            assert isinstance(first.reply(), Refusal)
            assert isinstance(second.reply(), Refusal)
            assert not select.select([third._socket], [], [], 0)[0]
        assert isinstance(third.reply(), bytes)
        assert first("XLEN", "s") == 2


def test_a_client_that_is_killed_meanwhile_leaves_the_others_alone(
    served: Served, lines: list[Line]
) -> None:
    """What it had asked for may be done, as with the peers; it is told nothing."""
    killed, killer, *others = lines
    number = killed("CLIENT", "ID")
    assert killer("XADD", "s", "*", "n", "0")
    with collected(served):
        for line in [*others[:3], killed, *others[3:]]:
            send(served, line, xadd(b"s", b"other" if line is not killed else b"killed"))
        _SENT[id(served)].append(1)
        assert killer("CLIENT", "KILL", "ID", number) == 1
    assert all(isinstance(line.reply(), bytes) for line in others)
    eventually(lambda: number not in served.service.clients)
    values = [fields[1] for _, fields in killer("XRANGE", "s", "-", "+")]
    assert [value for value in values if value != b"killed"] == [b"0"] + [b"other"] * len(others)


def test_a_full_disk_refuses_those_that_do_not_fit_and_keeps_the_others(
    small_disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_module, "_full", Seldom())
    value = os.urandom(900)
    store = {"segment_bytes": 1 << 20, "lock_timeout": 600.0}
    with serving(small_disk / "store", store=store) as served, ExitStack() as stack:
        lines = [stack.enter_context(Line(served.port)) for _ in range(CLIENTS)]
        there, refused = 0, 0
        while not refused:
            with collected(served):
                for line in lines:
                    send(served, line, *[xadd(b"s", value)] * 5)
            found = [line.reply() for line in lines for _ in range(5)]
            there += sum(isinstance(each, bytes) for each in found)
            refused = sum(str(each).startswith("MISCONF") for each in found)
            assert sum(isinstance(each, Refusal) for each in found) == refused
        assert lines[0]("XLEN", "s") == there
        assert lines[1]("PING") == b"PONG"
    told = [each for each in caplog.messages if "a client's change was refused: " in each]
    assert len(told) == 1
    assert str(small_disk) in told[0]


KILLED = """
import asyncio, logging, os, signal, sys, logstore
from logstore.wire.catalogue import service_of
from logstore.wire.command_runner import NOT_RUN
from logstore.wire.server import held_adds as group_commit
from logstore.wire.server.server import Listen, Server

path, commits = sys.argv[1], int(sys.argv[2])
shared = group_commit.GroupCommit
tell = shared._tell

def count():
    global commits
    commits -= 1
    if not commits:
        os.kill(os.getpid(), signal.SIGKILL)

def dies(self, taken, outcomes):
    count()
    tell(self, taken, outcomes)

def dies_too(commit):
    def committed(self, *given):
        reply = commit(self, *given)
        if reply is not NOT_RUN:
            count()
        return reply
    return committed

shared._tell = dies
shared.alone = dies_too(shared.alone)

async def main(store):
    server = Server(service_of(store))
    await server.start(Listen(port=0))
    print(server.service.port, flush=True)
    await asyncio.Event().wait()

with logstore.open(path) as store:
    asyncio.run(main(store))
"""


def test_a_kill_between_commit_and_replies_loses_nothing_told(tmp_path: Path) -> None:
    """What was told is there; what was committed and not told yet is there, too, and whole."""
    path, before = tmp_path / "store", 9
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(before)],
        stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    with process, Line(int(process.stdout.readline())) as line:
        told = [line("XADD", "s", "*", "n", number) for number in range(before - 1)]
        line.send(b"".join(request(xadd(b"s", b"x")) for _ in range(30)))
        with pytest.raises((ConnectionError, EOFError, AssertionError, IndexError)):
            line.reply()
        assert process.wait(SOON_S) == -signal.SIGKILL
    with logstore.open(path, encoding=None) as store:
        ids = [bytes(each.id) for each in store.stream(b"s")]
        assert ids[: before - 1] == told
        assert len(ids) == before - 1 + 30


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Of a store, without a server."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        yield service_of(store)


def steps(service: Service, *requests: list[bytes]) -> list[CommandStep]:
    """The steps of some requests."""
    session, parser = Session(service, trusted=True), RequestParser()
    parser.feed(b"".join(map(request, requests)))
    return [session.step(words) for _ in requests if (words := parser.next())]


def test_a_closed_client_fails_no_other_of_its_commit(service: Service) -> None:
    runs = [
        ClientSteps(steps(service, xadd(b"s", b"1"), xadd(b"t", b"1")), Output()),
        ClientSteps(steps(service, [b"XADD", b"s", b"MAXLEN", b"9", b"*", b"n", b"2"],
                  [b"XADD", b"s", b"MAXLEN", b"9", b"*", b"n", b"2"]),
            OutputBytes(2, 10, lambda: True)),
        ClientSteps(steps(service, xadd(b"s", b"3"), xadd(b"t", b"3")), Output()),
    ]  # fmt: skip
    first, cut, last = service.databases[0].runner.share(runs)
    assert isinstance(cut, ConnectionCut)
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert len(first) == len(last) == 2
    assert [each.fields[b"n"] for each in service.store.stream(b"s")] == [b"1", b"3"]


def test_a_client_that_is_owed_enough_goes_on_in_the_next_commit(service: Service) -> None:
    output = OutputBytes(2, 1 << 40, lambda: True)
    output.size = 1 << 30
    many = [b"XADD", b"s", b"MAXLEN", b"99", b"*", b"n", b"1"]
    runs = [
        ClientSteps(steps(service, many, many, many), output),
        ClientSteps(steps(service, many, many), OutputBytes(2, 1 << 40, lambda: True)),
    ]
    full, other = service.databases[0].runner.share(runs)
    assert isinstance(full, list)
    assert isinstance(other, list)
    assert (len(full), len(other)) == (1, 2)
    assert len(service.store.stream(b"s")) == 3


def test_a_commit_over_its_time_leaves_the_rest_to_the_next(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.wire.together.COMMIT_S", -1.0)
    many = [b"XADD", b"s", b"MAXLEN", b"99", b"*", b"n", b"1"]
    runs = [ClientSteps(steps(service, many, many), Output()) for _ in range(2)]
    assert [len(found) for found in service.databases[0].runner.share(runs)] == [1, 0]  # type: ignore[arg-type]
    assert len(service.store.stream(b"s")) == 1
