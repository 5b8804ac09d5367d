"""Prevents a long read from holding up others, from reading for nobody, and from telling of states
that never were.

Slices are counted, and their order is noted; nothing is timed. The server runs in a thread of the
test; where a moment between two slices matters, the slice itself acts in it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.wire.command_runner import Runner
from logstore.wire.commands.walking import SLICE_ENTRIES, EntriesWalk
from logstore.wire.partial_commits import PART_ENTRIES, PartialChange
from logstore.wire.server import read_turns
from tests.support.waits import eventually
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import Served, serving

MANY = 20 * SLICE_ENTRIES  # entries of the stream "long"
GONE = 40  # clients that ask for all of them and go


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a long stream and a short one."""
    path = tmp_path_factory.mktemp("slices") / "store"
    with serving(path, store={"sync": "os", "background": False}) as found:
        store = found.service.store
        rows = [(f"{number + 1}-0", {"n": str(number)}) for number in range(MANY)]
        store.stream("long").add_many(rows)
        store.stream("short").add({"n": "1"}, id="1-0")
        yield found


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    """A client."""
    with Line(served.port) as found:
        yield found


def key_of(walk: Any) -> bytes:
    """The first stream of a read."""
    stretches = walk._stretches
    key: bytes = stretches[0].key if stretches else walk._read_of._wanted[0][0]
    return key


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The stream of each slice that was read, in order; of long reads one in each round."""
    found: list[bytes] = []
    read = EntriesWalk.slice

    def noted(self: EntriesWalk, reader: Any) -> bool:
        found.append(key_of(self))
        return read(self, reader)

    monkeypatch.setattr(EntriesWalk, "slice", noted)
    monkeypatch.setattr(read_turns, "ROUND_S", 0.0)
    # Beside other processes a slice may take long: it would be left to a thread, and others pass.
    monkeypatch.setattr("logstore.wire.command_runner.SLOW_NS", 1 << 62)
    return found


def before_slice(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Have something happen before that slice of the next read."""
    read, count = EntriesWalk.slice, 0

    def acting(self: EntriesWalk, reader: Any) -> bool:
        nonlocal count
        count += 1
        if count == number:
            act()
        return read(self, reader)

    monkeypatch.setattr(EntriesWalk, "slice", acting)


HOW = ["close", "half-close", "reset"]
ALL = [b"XRANGE", b"long", b"-", b"+"]
SHORT = [b"XRANGE", b"short", b"-", b"+"]
LONG: dict[str, list[bytes]] = {
    "XRANGE": ALL,
    "XREVRANGE": [b"XREVRANGE", b"long", b"+", b"-"],
    "XREAD": [b"XREAD", b"STREAMS", b"long", b"0"],
    "XREAD BLOCK": [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"long", b"0"],
}


@pytest.mark.parametrize("name", LONG)
def test_a_short_read_passes_a_long_one(
    served: Served,
    line: Line,
    slices: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """It is answered behind a slice or two, and both replies are whole."""
    with Line(served.port) as other:
        other("PING")
        before_slice(monkeypatch, 3, lambda: other.send(request(SHORT)))
        line.send(request(LONG[name]))
        assert other.reply() == [[b"1-0", [b"n", b"1"]]]
        reply = line.reply()
    entries = reply if name.endswith("RANGE") else reply[0][1]
    ids = [entry[0] for entry in entries]
    expected = [b"%d-0" % (number + 1) for number in range(MANY)]
    assert ids == (expected[::-1] if name == "XREVRANGE" else expected)
    assert slices.count(b"long") >= MANY // SLICE_ENTRIES
    assert slices.index(b"short") < 6


def test_long_reads_take_turns_and_a_shorter_one_passes_them(
    served: Served, line: Line, slices: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when all long ones had a few slices: its own do not wait for one of each of them."""
    lines = [Line(served.port) for _ in range(10)]
    served.service.store.stream("brief").add_many([{"n": "1"}] * (3 * SLICE_ENTRIES))
    read, had, sent = EntriesWalk.slice, dict[EntriesWalk, int](), list[bytes]()

    def sending(self: EntriesWalk, reader: Any) -> bool:
        had[self] = had.get(self, 0) + 1
        if not sent and len(had) == len(lines) and min(had.values()) > read_turns.FEW_SLICES + 1:
            sent.append(request([b"XRANGE", b"brief", b"-", b"+"]))
            line.send(sent[0])
        return read(self, reader)

    monkeypatch.setattr(EntriesWalk, "slice", sending)
    for each in lines:
        each.send(request(ALL))
    assert len(line.reply()) == 3 * SLICE_ENTRIES
    for each in lines:
        assert len(each.reply()) == MANY
        each.close()
    first, last = slices.index(b"brief"), len(slices) - 1 - slices[::-1].index(b"brief")
    assert last - first < 2 * len(lines)
    assert slices[last:].count(b"long") > len(lines)  # they went on behind it


def hang_up(line: Line, how: str) -> None:
    """Go in one of three ways."""
    if how == "half-close":
        line.end()
        return
    if how == "reset":
        linger = struct.pack("ii", 1, 0)
        line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    line.close()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", LONG)
def test_a_read_ends_with_its_client(
    served: Served, line: Line, monkeypatch: pytest.MonkeyPatch, how: str, name: str
) -> None:
    """No slice is read once it is gone, but the one that was under way."""
    going = Line(served.port)
    number, count = going("CLIENT", "ID"), 0
    read = EntriesWalk.slice

    def counted(self: EntriesWalk, reader: Any) -> bool:
        nonlocal count
        count += 1
        if count == 3:
            hang_up(going, how)
        return read(self, reader)

    monkeypatch.setattr(EntriesWalk, "slice", counted)
    going.send(request(LONG[name]))
    eventually(lambda: number not in served.service.clients)
    assert count == 3
    assert line("PING") == b"PONG"
    going.close()


@pytest.mark.parametrize("how", HOW)
def test_a_read_of_a_group_ends_with_its_client(
    served: Served, line: Line, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What was handed out until then is pending."""
    going = Line(served.port)
    number, count = going("CLIENT", "ID"), 0
    part = PartialChange.part

    def counted(self: PartialChange, *args: Any, **options: Any) -> bool:
        nonlocal count
        count += 1
        if count == 3:
            hang_up(going, how)
        return part(self, *args, **options)

    monkeypatch.setattr(PartialChange, "part", counted)
    assert line("XGROUP", "CREATE", "long", how, "0") == b"OK"
    asked = [b"GROUP", how.encode(), b"c", b"COUNT", b"4000", b"STREAMS", b"long", b">"]
    going.send(request([b"XREADGROUP", *asked]))
    eventually(lambda: number not in served.service.clients)
    assert count == 3
    assert line("XPENDING", "long", how)[0] == 3 * PART_ENTRIES
    going.close()


def test_clients_that_ask_for_much_and_go_hold_up_nobody(
    served: Served, line: Line, slices: list[bytes]
) -> None:
    for _ in range(GONE):
        with Line(served.port) as going:
            going.send(request(ALL))
    assert line(*SHORT) == [[b"1-0", [b"n", b"1"]]]
    eventually(lambda: len(served.service.clients) == 1)
    assert slices.count(b"long") < GONE * MANY // SLICE_ENTRIES // 2


def test_a_half_closed_client_gets_a_reply_of_one_slice(served: Served) -> None:
    """If it is through with its first slice; half-closed clients were answered before."""
    with Line(served.port) as line:
        line.send(request(SHORT))
        line.end()
        assert line.reply() == [[b"1-0", [b"n", b"1"]]]


# -- what a reply tells -----------------------------------------------------------------------
@pytest.fixture
def stream(served: Served, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream of three slices, of this test."""
    name = f"of {request.node.name}"
    stream = served.service.store.stream(name)
    stream.add_many([(f"{number + 1}-0", {"n": "1"}) for number in range(3 * SLICE_ENTRIES)])
    yield name
    served.service.store.drop(name)


def ids(entries: Any) -> list[int]:
    """The first parts of IDs."""
    return [int(entry[0].partition(b"-")[0]) for entry in entries]


def test_a_read_ends_where_the_stream_ended(
    served: Served, line: Line, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.service.store

    def add() -> None:
        store.stream(stream).add({"n": "2"}, id="999999-0")

    before_slice(monkeypatch, 2, add)
    assert ids(line("XRANGE", stream, "-", "+")) == [*range(1, 3 * SLICE_ENTRIES + 1)]
    assert ids(line("XRANGE", stream, "-", "+"))[-1] == 999999


def test_the_streams_of_one_read_end_at_one_moment(
    served: Served, line: Line, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added to the second one after the first one's end was read is not in the reply."""
    store = served.service.store
    store.stream("later").add({"n": "1"}, id="1-0")

    def add() -> None:
        store.stream(stream).add({"n": "2"}, id="999999-0")
        store.stream("later").add({"n": "2"}, id="2-0")

    before_slice(monkeypatch, 2, add)
    try:
        found = line("XREAD", "STREAMS", stream, "later", "0", "0")
        assert [ids(entries)[-1] for _, entries in found] == [3 * SLICE_ENTRIES, 1]
    finally:
        store.drop("later")


def test_nothing_is_read_of_another_stream_of_the_same_name(
    served: Served, line: Line, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.service.store

    def replace() -> None:
        store.drop(stream)
        store.stream(stream).add_many([(f"{number + 1}-0", {"n": "2"}) for number in range(700)])

    before_slice(monkeypatch, 2, replace)
    assert ids(line("XRANGE", stream, "-", "+")) == [*range(1, SLICE_ENTRIES + 1)]


COUNTS = [1, SLICE_ENTRIES, *(n * SLICE_ENTRIES + more for n in (1, 2, 3) for more in (-1, 1))]


@pytest.mark.parametrize("words", [["XRANGE", "{}", "-", "+"], ["XREVRANGE", "{}", "+", "-"]])
@pytest.mark.parametrize("count", COUNTS)
def test_count_is_kept_over_slices(line: Line, stream: str, words: list[str], count: int) -> None:
    asked = [word.format(stream) for word in words]
    found = ids(line(*asked, "COUNT", count))
    whole = [*range(1, 3 * SLICE_ENTRIES + 1)]
    assert found == (whole if words[0] == "XRANGE" else whole[::-1])[:count]


def test_the_limits_of_a_read_of_several_streams_are_kept_over_slices(
    tmp_path: Path, stream: str, served: Served
) -> None:
    """MAXCOUNT and MAXSIZE, of which a snapshot's worth is read at a time."""
    with serving(tmp_path / "store", profile="redis-8.10") as other, Line(other.port) as line:
        for name in ("a", "b", "c"):
            rows = [(f"{number + 1}-0", {"n": "1"}) for number in range(SLICE_ENTRIES)]
            other.service.store.stream(name).add_many(rows)
        streams = ["STREAMS", "a", "b", "c", "0", "0", "0"]
        found = line("XREAD", "MAXCOUNT", SLICE_ENTRIES + 10, *streams)
        assert [len(entries) for _, entries in found] == [SLICE_ENTRIES, 10]
        found = line("XREAD", "COUNT", 5, *streams)
        assert [len(entries) for _, entries in found] == [5, 5, 5]
        found = line("XREAD", "MAXSIZE", 18 * (SLICE_ENTRIES + 3), *streams)
        assert [len(entries) for _, entries in found] == [SLICE_ENTRIES, 3]


def test_in_a_transaction_a_read_is_of_its_moment(line: Line, stream: str) -> None:
    assert line("MULTI") == b"OK"
    line("XADD", stream, "999999-0", "n", "1")
    line("XRANGE", stream, "-", "+")
    added, found = line("EXEC")
    assert added == b"999999-0"
    assert ids(found) == [*range(1, 3 * SLICE_ENTRIES + 1), 999999]


def test_a_slice_that_has_to_wait_is_read_in_a_thread(
    served: Served, line: Line, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the read goes on where it stood."""
    refused = 0
    at_once = Runner.slice_at_once

    def refusing(self: Runner, reading: Any) -> bool:
        nonlocal refused
        refused += 1
        if refused % 2:
            return at_once(self, reading)
        reading.waits = True
        return False

    monkeypatch.setattr(Runner, "slice_at_once", refusing)
    assert ids(line("XRANGE", stream, "-", "+")) == [*range(1, 3 * SLICE_ENTRIES + 1)]
    assert refused >= 2


def test_a_read_that_fails_is_refused_and_the_connection_stays(
    line: Line, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise ZeroDivisionError

    before_slice(monkeypatch, 2, failing)
    assert isinstance(line("XRANGE", stream, "-", "+"), Refusal)
    assert line("PING") == b"PONG"
