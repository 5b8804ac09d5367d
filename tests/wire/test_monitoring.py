"""Prevents monitoring tools and client libraries from finding nothing where they look first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.wire.catalogue import service_of
from logstore.wire.resp.reply import Verbatim
from logstore.wire.session import Session
from tests.peers.servers import Peer
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import Served, serving


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "store", profile="redis-8.2") as found:
        yield found


SAME = """
ROLE
RANDOMKEY
CLUSTER INFO
CLUSTER NODES
CLUSTER SLOTS
CLUSTER KEYSLOT foo
CLUSTER HELP
CLUSTER FOO
SLOWLOG RESET
SLOWLOG GET
SLOWLOG GET 5
SLOWLOG GET -1
SLOWLOG GET -2
SLOWLOG GET x
SLOWLOG LEN
SLOWLOG RESET
SLOWLOG FOO
CONFIG SET stream-node-max-entries 5
CONFIG GET stream-node-max-entries
CONFIG SET stream-node-max-entries x
CONFIG SET stream-node-max-entries 0
CONFIG SET stream-node-max-bytes 4kb
CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-bytes 2K
CONFIG SET stream-node-max-bytes -1
CONFIG SET stream-node-max-bytes x
CONFIG SET stream-node-max-bytes 1gb
CONFIG SET stream-node-max-entries 7 stream-node-max-bytes x
CONFIG SET stream-node-max-entries 7 stream-node-max-entries 8
CONFIG GET stream-node-max-entries
CONFIG SET nosuch 1
CONFIG SET databases 3
CONFIG FOO
ACL FOO
MEMORY FOO
OBJECT FOO
""".strip().splitlines()


def test_what_tools_ask_is_answered_as_there(redis_peer: Peer, served: Served) -> None:
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("FLUSHALL")
        try:
            for line in SAME:
                assert ours(*line.split()) == theirs(*line.split()), line
        finally:
            theirs("CONFIG", "SET", "stream-node-max-entries", 100, "stream-node-max-bytes", 4096)


def told(line: Line, *sections: str) -> dict[str, str]:
    """INFO as names and values."""
    text = line("INFO", *sections).decode()
    return dict(each.split(":", 1) for each in text.splitlines() if ":" in each)


def test_info_has_what_clients_look_for(redis_peer: Peer, served: Served) -> None:
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("CONFIG", "RESETSTAT")
        theirs("FLUSHALL")
        for line in (ours, theirs):
            line("XADD", "s", "1-1", "f", "v")
            for _ in range(2):
                assert isinstance(line("XADD", "s", "1-1", "f", "v"), Refusal)
            assert isinstance(line("NOSUCH"), Refusal)
            line("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        assert told(ours, "errorstats") == told(theirs, "errorstats")
        assert told(ours, "cluster") == told(theirs, "cluster") == {"cluster_enabled": "0"}
        mine, other = told(ours), told(theirs)
        names = ("rdb_changes_since_last_save", "instantaneous_ops_per_sec", "used_memory_human",
                 "used_memory_peak_human", "used_memory_rss_human", "total_system_memory_human",
                 "maxmemory_human", "total_error_replies", "cluster_enabled")  # fmt: skip
        for name in names:
            assert name in mine, name
            assert name in other, name
        assert mine["maxmemory_human"] == other["maxmemory_human"] == "0B"
        assert re.fullmatch(r"\d+\.\d\d[KMGT]", mine["used_memory_human"])
        assert mine["total_system_memory_human"][-1] == other["total_system_memory_human"][-1]
        assert mine["rdb_changes_since_last_save"] == "1"
        assert ours("SAVE") == b"OK"
        assert told(ours)["rdb_changes_since_last_save"] == "0"
        for _ in range(300):
            ours("PING")
        assert int(told(ours)["instantaneous_ops_per_sec"]) > 0
        ours("CONFIG", "RESETSTAT")
        assert told(ours, "errorstats") == {}


def test_errors_in_pipelines_and_transactions_are_counted(served: Served) -> None:
    with Line(served.port) as line:
        line("XADD", "s", "18446744073709551615-18446744073709551615", "a", "1")
        line.send(request([b"XADD", b"s", b"*", b"a", b"1"]) * 20)  # one step, one reply
        assert all(isinstance(line.reply(), Refusal) for _ in range(20))
        line("MULTI")
        line("XADD", "s", "1-1", "a", "1")
        line("XGROUP", "CREATE", "none", "g", "$")
        assert len(line("EXEC")) == 2
        assert told(line, "errorstats") == {"errorstat_ERR": "count=22"}


def test_monitor_tells_what_others_ask(redis_peer: Peer, served: Served) -> None:
    found = []
    for port in (served.port, redis_peer.port):
        with Line(port) as watching, Line(port) as asking:
            asking("DEL", "s")
            assert watching("MONITOR") == b"OK"
            asking("XADD", "s", "1-1", b'f\x00"\\', b"\r\n\xff")
            asking("NOSUCH")
            asking("XADD", "s")
            asking("CONFIG", "GET", "port")
            asking.send(request([b"XLEN", b"s"]) * 2)
            asking.reply(), asking.reply()
            asking("PING")
            lines = [watching.reply() for _ in range(4)]
            found.append([re.sub(rb"^[0-9.]+ \[0 [0-9.:]+\] ", b"", bytes(line)) for line in lines])
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["OBJECT", "ACL", "CONFIG", "MEMORY", "SLOWLOG"])
def test_help_tells_subcommands(redis_peer: Peer, served: Served, command: str) -> None:
    """What is there is there in the peer, too, and the error that names HELP is right."""
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        mine, other = ours(command, "HELP"), theirs(command, "HELP")
        assert mine[0] == other[0]
        assert mine[-2:] == other[-2:]

        def words(lines: Any) -> set[bytes]:
            return {line.split()[0] for line in lines[1:] if not line.startswith(b" ")}

        assert words(mine) <= words(other)


def test_limits_of_nodes_are_set_for_new_nodes_and_kept(
    redis_peer: Peer, served: Served, tmp_path: Path
) -> None:
    def fill(line: Line, low: int) -> int:
        for number in range(low, low + 20):
            line("XADD", "s", f"{number}-1", "f", "v")
        found = line("XINFO", "STREAM", "s")
        return int(found[found.index(b"radix-tree-keys") + 1])

    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("FLUSHALL")
        theirs("CONFIG", "SET", "stream-node-max-entries", 100)
        try:
            for entries in (100, 5, 0, 7):
                found = []
                for line in (ours, theirs):
                    assert line("CONFIG", "SET", "stream-node-max-entries", entries) == b"OK"
                    found.append(fill(line, 1 + 20 * entries if entries else 2001))
                    line("DEL", "s") if entries == 0 else None
                assert found[0] == found[1], entries
        finally:
            theirs("CONFIG", "SET", "stream-node-max-entries", 100)
        refused = ours("CONFIG", "SET", "stream-node-max-entries", 1_000_001)
        assert "between 0 and 1000000 inclusive" in str(refused)
        with logstore.open(tmp_path / "store", readonly=True) as reader:
            assert reader._engine().limits.node_max_entries == 7


class Coming(Session):
    """A client beside whom another one comes whenever somebody looks at it."""

    @property
    def unblock(self) -> Any:  # type: ignore[override]
        """None: it does not wait."""
        Session(self.service)
        return None

    @unblock.setter
    def unblock(self, _value: object) -> None:
        pass


def test_info_is_told_while_clients_come(tmp_path: Path) -> None:
    """Prevents INFO that fails because a client connects while it counts those that wait."""
    with logstore.open(tmp_path / "store") as store:
        session = Session(service_of(store))
        Coming(session.service)
        reply = session.database.runner.run([session.step([b"INFO", b"clients"])])[0]
        assert isinstance(reply, Verbatim)
