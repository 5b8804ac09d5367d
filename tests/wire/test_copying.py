"""Prevents payloads that a real server refuses, or reads as another stream, or that change ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import serving


@pytest.mark.peers
def test_payloads_go_both_ways(tmp_path: Path, peer: Peer) -> None:
    for name, limit in (("stream-node-max-bytes", 4096), ("stream-node-max-entries", 100)):
        peer.client.config_set(name, limit)  # whatever a test before wanted
    profile = "redis-8.2" if peer.name == "redis" else "valkey-9"
    for name, value in (("bytes", 4096), ("entries", 100)):  # whatever other tests left
        peer.client.config_set(f"stream-node-max-{name}", value)
    with (
        serving(tmp_path / "store", profile=profile) as served,
        Line(served.port) as ours,
        Line(peer.port) as theirs,
    ):
        for line in (ours, theirs):
            for n in range(1, 251):
                line("XADD", "s", f"{n}-0", "f", n, "g", "x" * (n % 50))
            line("XDEL", "s", "5-0", "7-0", "240-0")
            line("XGROUP", "CREATE", "s", "g", "200-0")
            line("XTRIM", "s", "MAXLEN", 180)
        payload, other = ours("DUMP", "s"), theirs("DUMP", "s")
        assert payload[:-10] == other[:-10]
        assert ours("DUMP", "none") is theirs("DUMP", "none") is None
        for line, given in ((ours, other), (theirs, payload)):
            assert line("RESTORE", "t", 0, given) == b"OK"
            assert line("RESTORE", "t", 0, given).startswith("BUSYKEY")
            assert line("RESTORE", "t", 0, given, "REPLACE") == b"OK"
            assert line("RESTORE", "u", 0, given[:-1]).startswith("ERR DUMP payload version or")
            assert line("RESTORE", "u", -1, given) == "ERR Invalid TTL value, must be >= 0"
            assert line("EXISTS", "u") == 0
        assert ours("XINFO", "STREAM", "t", "FULL") == theirs("XINFO", "STREAM", "t", "FULL")
        assert ours("DUMP", "t")[:-10] == other[:-10]


@pytest.mark.peers
def test_counts_past_their_limit_are_told_as_servers_tell_them(tmp_path: Path, peer: Peer) -> None:
    """ENTRIESADDED up to 2^63-1 is taken, and what is added then is counted on with a sign."""
    most = 2**63 - 1
    profile = "redis-8.2" if peer.name == "redis" else "valkey-9"
    with (
        serving(tmp_path / "store", profile=profile) as served,
        Line(served.port) as ours,
        Line(peer.port) as theirs,
    ):
        for words in (
            ("XADD", "s", "1-1", "a", "b"),
            ("XSETID", "s", "1-1", "ENTRIESADDED", most + 1, "MAXDELETEDID", "0-0"),
            ("XSETID", "s", "1-1", "ENTRIESADDED", most, "MAXDELETEDID", "0-0"),
            ("XGROUP", "CREATE", "s", "g", "0", "ENTRIESREAD", most),
            ("XADD", "s", "2-1", "a", "b"),
            ("XINFO", "STREAM", "s"),
            ("XGROUP", "CREATE", "s", "h", "$"),
            ("XGROUP", "CREATE", "s", "i", "0", "ENTRIESREAD", most),
            ("XADD", "s", "3-1", "a", "b"),
            *(("XREADGROUP", "GROUP", name, "c", "STREAMS", "s", ">") for name in "ghi"),
            ("XINFO", "STREAM", "s"),
            ("XACK", "s", "g", "1-1", "2-1", "3-1"), ("XACK", "s", "h", "3-1"),
            ("XACK", "s", "i", "1-1", "2-1", "3-1"),
            *(("XGROUP", "DELCONSUMER", "s", name, "c") for name in "ghi"),
            ("XINFO", "GROUPS", "s"),
        ):  # fmt: skip
            assert ours(*words) == theirs(*words), words
        payload, other = ours("DUMP", "s"), theirs("DUMP", "s")
        assert payload[:-10] == other[:-10]
        for line, given in ((ours, other), (theirs, payload)):
            assert line("RESTORE", "t", 0, given) == b"OK"
            assert line("XADD", "t", "4-1", "a", "b") == b"4-1"
        for words in (("XINFO", "STREAM", "t"), ("XINFO", "GROUPS", "t")):
            assert ours(*words) == theirs(*words), words


def test_a_transaction_dumps_what_it_has_so_far(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "store", store={"node_max_entries": 3}) as served,
        Line(served.port) as line,
    ):
        for at in range(1, 6):
            line("XADD", "s", f"{at}-0", "a", "1")
        line("MULTI")
        for at in range(6, 12):
            line("XADD", "s", f"{at}-0", "a", "1")
        for words in (("XDEL", "s", "2-0", "7-0"), ("DUMP", "s"), ("DUMP", "none")):
            assert line(*words) == b"QUEUED"
        *_, inside, nothing = line("EXEC")
        assert nothing is None
        assert inside == line("DUMP", "s")
