"""Prevents adds that are answered without waking their client's task from doing what it would not.

Each case sends one piece whose first requests are plain adds, and some more behind them: what a
client is told is what a server tells that runs each request by itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from logstore.api.opening import OpenStore, opened_of
from logstore.engine.lane.lane_loading import native_or_none
from logstore.wire.command_runner import Runner, cost_of
from logstore.wire.server.at_once import AtOnce
from logstore.wire.server.held_adds import LIGHT_COST, GroupCommit
from logstore.wire.server.listening import Listen
from logstore.wire.session import Session
from logstore.wire.steps import Change
from tests.support.waits import eventually
from tests.wire.collected import collected, send, xadd
from tests.wire.lines import Absent, Line, Refusal, request
from tests.wire.served import Served, serving

ID, REFUSED, QUEUED = "id", "refused", b"QUEUED"
Words: TypeAlias = list[bytes]
ADD, PING = xadd(b"s", b"1"), [b"PING"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose clients wait long for LOCK."""
    path = tmp_path_factory.mktemp("quick") / "store"
    with serving(path, store={"lock_timeout": 600.0}) as found:
        yield found


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    """A client, of an empty stream's server."""
    with Line(served.port) as found:
        found("DEL", "s")
        found("XADD", "s", "*", "n", "0")
        yield found


def kind(reply: Any) -> object:
    """A reply, without what differs from run to run."""
    if isinstance(reply, Refusal):
        return REFUSED
    if isinstance(reply, list):
        return [kind(each) for each in reply]
    return ID if isinstance(reply, bytes) and b"-" in reply else reply


CASES: dict[str, tuple[list[Words], list[object]]] = {
    "one": ([ADD], [ID]),
    "a read behind it sees it": ([ADD, [b"XLEN", b"s"], ADD, [b"XLEN", b"s"]], [ID, 2, ID, 3]),
    "no store": ([ADD, PING, ADD, PING], [ID, b"PONG", ID, b"PONG"]),
    "a transaction": (
        [ADD, [b"MULTI"], ADD, [b"XLEN", b"s"], [b"EXEC"], ADD],
        [ID, b"OK", QUEUED, QUEUED, [ID, 3], ID],
    ),
    "one that is refused": ([ADD, xadd(b"s", b"2", b"1-1"), ADD], [ID, REFUSED, ID]),
    "a wrong number of words": ([ADD, [b"XADD", b"s", b"*", b"n"], ADD], [ID, REFUSED, ID]),
    "another kind of add": (
        [ADD, [b"XADD", b"s", b"MAXLEN", b"1", b"*", b"n", b"1"], [b"XLEN", b"s"], ADD],
        [ID, ID, 1, ID],
    ),
    "a name twice": (
        [[b"XADD", b"s", b"*", b"n", b"1", b"n", b"2"], [b"XREVRANGE", b"s", b"+", b"-"]],
        [ID, [[ID, [b"n", b"1", b"n", b"2"]], [ID, [b"n", b"0"]]]],
    ),
    "no replies": (
        [ADD, [b"CLIENT", b"REPLY", b"SKIP"], ADD, ADD, [b"XLEN", b"s"]],
        [ID, ID, 4],
    ),
    "one that waits": (
        [ADD, [b"XREAD", b"BLOCK", b"1", b"STREAMS", b"none", b"$"], ADD], [ID, Absent(), ID],
    ),
    "two databases": ([ADD, [b"SELECT", b"5"], ADD], [ID, REFUSED, ID]),
}  # fmt: skip


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "one by one"])
@pytest.mark.parametrize("name", CASES)
def test_replies_are_those_of_each_request_by_itself(line: Line, name: str, *, apart: bool) -> None:
    requests, expected = CASES[name]
    if apart and len(requests) == len(expected):  # each of them is answered
        assert [kind(line(*words)) for words in requests] == expected
    else:
        line.send(b"".join(map(request, requests)))
        assert [kind(line.reply()) for _ in expected] == expected
    assert line("PING") == b"PONG"  # and nothing more


@pytest.mark.parametrize("at", [1, 5, 20, 36, 40])
def test_a_request_in_two_pieces_is_run_once_it_is_whole(line: Line, at: int) -> None:
    data = request(ADD)
    line.send(data + data[:at])
    assert kind(line.reply()) == ID
    line.send(data[at:] + request([b"XLEN", b"s"]))
    assert [kind(line.reply()) for _ in range(2)] == [ID, 3]


def test_requests_during_a_waiting_add_run_behind_it(served: Served, line: Line) -> None:
    client = served.service.clients[line("CLIENT", "ID")]
    with collected(served):
        send(served, line, ADD)
        eventually(lambda: client.last_command == "xadd")
        line.send(request([b"XLEN", b"s"]) + request(ADD))
    assert [kind(line.reply()) for _ in range(3)] == [ID, 2, ID]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether what came was seen to, each time that something came."""
    found: list[bool] = []
    took = AtOnce.took

    def noted(self: AtOnce, data: bytes) -> bool:
        found.append(took(self, data))
        return found[-1]

    monkeypatch.setattr(AtOnce, "took", noted)
    return found


def test_adds_alone_wake_no_task(served: Served, tried: list[bool]) -> None:
    with Line(served.port) as line:
        for number in range(5):
            assert kind(line("XADD", "s", "*", "n", number)) == ID
    eventually(lambda: len(tried) == 5)  # the last one is answered before it is noted
    assert all(tried)


@pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled")
def test_an_add_that_the_lane_refuses_sends_nobody_behind_it_to_the_shared_commit(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):  # until the lane knows the stream
        line("XADD", "s", "*", "n", "0")
    add_plain, hand_in, handed = OpenStore.add_plain, GroupCommit.hand_in, list[bytes]()
    refused = [b"2", b"4", b"6", b"7"]

    def refusing(self: Any, name: Any, fields: Any, *others: Any) -> Any:
        return None if fields[b"n"] in refused else add_plain(self, name, fields, *others)

    def noted(self: GroupCommit, steps: Any, *args: Any) -> Any:
        handed.append(steps[0].row.pairs[0][1])
        return hand_in(self, steps, *args)

    monkeypatch.setattr(OpenStore, "add_plain", refusing)
    monkeypatch.setattr(GroupCommit, "hand_in", noted)
    for number in range(9):
        assert kind(line("XADD", "s", "*", "n", number)) == ID
    found = [pairs[1] for _, pairs in line("XRANGE", "s", "-", "+")]
    assert found[6:] == [b"%d" % number for number in range(9)]
    assert set(refused) <= set(handed)
    assert len(handed) < 9


LIGHT: dict[str, tuple[Words, object]] = {
    "no store": (PING, b"PONG"),
    "words back": ([b"ECHO", b"x" * 900], b"x" * 900),
    "a length": ([b"XLEN", b"s"], 1),
    "a kind": ([b"TYPE", b"s"], b"stream"),
    "none of it": ([b"XLEN", b"none"], 0),
    "a range": ([b"XRANGE", b"s", b"-", b"+", b"COUNT", b"1"], [[ID, [b"n", b"0"]]]),
    "the newest": ([b"XREVRANGE", b"s", b"+", b"-"], [[ID, [b"n", b"0"]]]),
    "of several": (
        [b"XREAD", b"STREAMS", b"none", b"s", b"0", b"0"],
        [[b"s", [[ID, [b"n", b"0"]]]]],
    ),
    "nothing new": ([b"XREAD", b"STREAMS", b"s", b"$"], Absent()),
}


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_request_by_itself_is_answered_without_a_thread(
    line: Line, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words, expected = LIGHT[name]
    assert line("PING") == b"PONG"
    monkeypatch.setattr(Runner, "run", None)
    for _ in range(3):
        assert kind(line(*words)) == expected
    assert kind(line("XADD", "s", "*", "n", "1")) == ID
    assert line("XLEN", "s") == 2


def test_reopening_the_index_holds_up_no_other_client(served: Served, line: Line) -> None:
    gate = opened_of(served.service.store).engine().gate
    assert gate.shut()
    try:
        line.send(request([b"XLEN", b"s"]) + request(PING))
        with Line(served.port) as other:
            assert other("PING") == b"PONG"
    finally:
        gate.reopen()
    assert [line.reply(), line.reply()] == [1, b"PONG"]


def test_commands_answered_at_once_are_counted_and_timed(served: Served, line: Line) -> None:
    before = served.service.counts.commands
    assert [line("XLEN", "s"), line("PING")] == [1, b"PONG"]
    assert served.service.counts.commands == before + 2
    assert line("CONFIG", "SET", "slowlog-log-slower-than", "0") == b"OK"
    try:
        assert line("XLEN", "s") == 1
        assert any(b"XLEN" in found[3] for found in line("SLOWLOG", "GET", "5"))
    finally:
        assert line("CONFIG", "SET", "slowlog-log-slower-than", "10000") == b"OK"


def test_monitor_tells_each_add(served: Served, line: Line) -> None:
    with Line(served.port) as monitor:
        assert monitor("MONITOR") == b"OK"
        assert kind(line("XADD", "s", "*", "n", "seen")) == ID
        assert b'"seen"' in monitor.reply()
    assert kind(line("XADD", "s", "*", "n", "unseen")) == ID


def test_rights_are_asked_for_with_each_add(served: Served, line: Line) -> None:
    assert line("ACL", "SETUSER", "w", "on", ">secret", "~s", "+xadd") == b"OK"
    with Line(served.port) as worker:
        assert worker("AUTH", "w", "secret") == b"OK"
        assert kind(worker("XADD", "s", "*", "n", "1")) == ID
        assert kind(worker("XADD", "other", "*", "n", "1")) == REFUSED
        worker.send(request(ADD) + request(ADD) + request(xadd(b"other", b"1")) * 2)
        assert [kind(worker.reply()) for _ in range(4)] == [ID, ID, REFUSED, REFUSED]
        assert line("ACL", "SETUSER", "w", "-xadd") == b"OK"
        assert kind(worker("XADD", "s", "*", "n", "1")) == REFUSED
        assert line("ACL", "DELUSER", "w") == 1
        with pytest.raises((EOFError, ConnectionError)):
            worker("XADD", "s", "*", "n", "1")
    assert line("XLEN", "s") == 4


def test_without_the_password_nothing_is_added(served: Served, line: Line) -> None:
    assert line("ACL", "SETUSER", "default", "on", "resetpass", ">secret") == b"OK"
    try:
        with Line(served.port) as stranger:
            stranger.send(request(ADD) + request([b"AUTH", b"secret"]) + request(ADD))
            assert [kind(stranger.reply()) for _ in range(3)] == [REFUSED, b"OK", ID]
            assert kind(stranger("XADD", "s", "*", "n", "1")) == ID
            assert stranger("RESET") == b"RESET"
            assert kind(stranger("XADD", "s", "*", "n", "1")) == REFUSED
    finally:
        assert line("ACL", "SETUSER", "default", "nopass") == b"OK"
    assert line("XLEN", "s") == 3


def test_a_client_that_goes_while_its_add_waits_leaves_the_server_as_it_was(
    served: Served, line: Line
) -> None:
    with collected(served), Line(served.port) as going:
        number = going("CLIENT", "ID")
        send(served, going, ADD)
        eventually(lambda: served.service.clients[number].last_command == "xadd")
    eventually(lambda: number not in served.service.clients)
    assert line("XLEN", "s") in (1, 2)  # it may have been begun
    assert kind(line("XADD", "s", "*", "n", "1")) == ID


def test_without_replies_it_adds_all_the_same(
    served: Served, tried: list[bool], line: Line
) -> None:
    client = served.service.clients[line("CLIENT", "ID")]
    line.send(request([b"CLIENT", b"REPLY", b"OFF"]))
    eventually(lambda: client.replies == "OFF")
    tried.clear()
    line.send(request(ADD))
    eventually(lambda: tried)
    assert tried == [True]
    assert line("CLIENT", "REPLY", "ON") == b"OK"
    assert line("XLEN", "s") == 2


def test_a_commit_over_its_time_leaves_the_rest_to_the_next(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.wire.together.COMMIT_S", -1.0)
    line("DEL", "t")
    line.send(b"".join(map(request, [ADD, xadd(b"t", b"1"), ADD, xadd(b"t", b"2")])))
    assert [kind(line.reply()) for _ in range(4)] == [ID] * 4
    assert (line("XLEN", "s"), line("XLEN", "t")) == (3, 2)


def test_a_client_that_does_not_read_is_left_to_its_task(tmp_path: Path, tried: list[bool]) -> None:
    """And is told all in the end, in order."""
    path, adds, pieces = str(tmp_path / "socket"), 200, 0
    with (
        serving(tmp_path / "store", listen=Listen(host=None, unix_socket=Path(path))) as served,
        socket.socket(socket.AF_UNIX) as connected,
    ):
        connected.connect(path)
        line = Line.on(connected)
        stream = served.service.store.stream("s")
        while False not in tried:
            assert pieces < 200
            line.send(request(ADD) * adds)
            pieces += 1
            sent = adds * pieces
            eventually(lambda sent=sent: False in tried or len(stream) == sent)
        ids = [line.reply() for _ in range(adds * pieces)]
        assert line("XLEN", "s") == len(ids)
        found = [tuple(map(int, id.split(b"-"))) for id in ids]
        assert found == sorted(set(found))


@pytest.mark.parametrize("requests", [1, 3])
def test_a_large_add_is_committed_in_a_thread(
    line: Line, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    """Whatever its number of fields, alone or with others: it is large by its bytes."""
    here: list[int] = []
    add_plain, share = OpenStore.add_plain, Runner.share

    def noted(self: Any, name: Any, fields: Any, *others: Any) -> Any:
        here.append(max(map(len, fields.values())))
        return add_plain(self, name, fields, *others)

    def shared(self: Runner, runs: Any, *, at_once: bool = False) -> Any:
        if at_once:
            here.extend(cost_of(step) for run in runs for step in run.steps)
        return share(self, runs, at_once=at_once)

    monkeypatch.setattr(OpenStore, "add_plain", noted)
    monkeypatch.setattr(Runner, "share", shared)
    size = 1 << 20
    line.send(request(xadd(b"s", b"x" * size)) * requests)
    assert [kind(line.reply()) for _ in range(requests)] == [ID] * requests
    assert max(here, default=0) <= LIGHT_COST
    assert line("XLEN", "s") == 1 + requests


@pytest.mark.parametrize("fields", [1, 2000])
def test_an_add_is_scheduled_by_its_bytes(served: Served, fields: int) -> None:
    """However it comes: the end of a large request may be a small piece."""
    session = Session(served.service, trusted=True)
    value = b"x" * ((1 << 20) // fields)
    large = session.step([b"XADD", b"s", b"*", *[b"n", value] * fields])
    small = session.step([b"XADD", b"s", b"*", b"n", b"1"])
    served.service.end(session)
    assert isinstance(large, Change)
    assert isinstance(small, Change)
    assert (large.beside, small.beside is None) == (None, False)
    assert cost_of(large) > LIGHT_COST > cost_of(small)
