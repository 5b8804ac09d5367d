"""Prevents options and versions of servers from being other than their published source says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.wire.catalogue import table_of
from tests.peers.servers import Peer
from tests.wire.lines import Absent, Line, Reply
from tests.wire.served import serving


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    """A connection to a server of the newest profile."""
    with serving(tmp_path / "store") as served, Line(served.port) as found:
        yield found


def fields(reply: Reply) -> dict[bytes, Reply]:
    """A flat reply as a mapping."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def test_idempotent_adds(line: Line) -> None:
    first = line("XADD", "s", "IDMP", "p", "one", "*", "a", "1")
    assert line("XADD", "s", "IDMP", "p", "one", "*", "a", "2") == first
    assert line("XADD", "s", "IDMP", "q", "one", "*", "a", "2") != first
    auto = line("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "2")
    assert line("XADD", "s", "IDMPAUTO", "p", "*", "b", "2", "a", "1") == auto
    info = fields(line("XINFO", "STREAM", "s"))
    assert (info[b"pids-tracked"], info[b"iids-tracked"]) == (2, 3)
    assert (info[b"iids-added"], info[b"iids-duplicates"]) == (3, 2)
    assert (info[b"idmp-duration"], info[b"idmp-maxsize"]) == (100, 100)
    assert line("XCFGSET", "s", "IDMP-DURATION", 60) == b"OK"
    assert fields(line("XINFO", "STREAM", "s"))[b"iids-tracked"] == 0
    assert line("XADD", "s", "NOMKSTREAM", "IDMP", "p", "one", "*", "a", "1") != first


def test_xidmprecord_records_the_producer_of_an_entry(line: Line) -> None:
    given = line("XADD", "s", "*", "a", "1")
    assert line("XIDMPRECORD", "s", "p", "one", given) == b"OK"
    assert line("XIDMPRECORD", "s", "p", "one", given) == b"OK"
    assert line("XADD", "s", "IDMP", "p", "one", "*", "a", "2") == given
    info = fields(line("XINFO", "STREAM", "s"))
    assert (info[b"iids-tracked"], info[b"iids-added"], info[b"iids-duplicates"]) == (1, 0, 1)
    other = line("XADD", "s", "*", "a", "3")
    told = line("XIDMPRECORD", "s", "p", "one", other)
    assert told == "ERR IID already exists for this producer with a different stream ID"
    assert "another idempotent ID" in line("XIDMPRECORD", "s", "q", "two", given)
    line("XDEL", "s", given)
    assert line("XIDMPRECORD", "s", "p", "one", given) == "ERR No such message in stream"
    assert line("XIDMPRECORD", "s", "", "", "1-x").startswith("ERR Invalid stream ID")
    assert line("XIDMPRECORD", "none", "", "", "1-1") == "ERR producer ID must be non-empty"
    assert line("XIDMPRECORD", "none", "p", "", "1-1") == "ERR idempotent ID must be non-empty"
    assert line("XIDMPRECORD", "s", "p", "one", other) == b"OK"
    assert line("XADD", "s", "IDMP", "p", "one", "*", "a", "2") == other


def test_a_producer_that_has_its_most_forgets_its_oldest(line: Line) -> None:
    ids = [line("XADD", "s", "*", "n", n) for n in range(4)]
    line("XCFGSET", "s", "IDMP-MAXSIZE", 2)
    for place in (1, 2, 3, 0):  # what is older than both is not remembered at all
        assert line("XIDMPRECORD", "s", "p", place, ids[place]) == b"OK"
    again = [line("XADD", "s", "IDMP", "p", place, "*", "a", "b") for place in (3, 2)]
    assert again == [ids[3], ids[2]]
    assert fields(line("XINFO", "STREAM", "s"))[b"iids-tracked"] == 2
    assert line("XADD", "s", "IDMP", "p", 0, "*", "a", "b") not in ids


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("XADD s IDMP p i 1-1 a b", "IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMP p i IDMPAUTO p * a b", "IDMP/IDMPAUTO specified multiple times"),
        ("XCFGSET s IDMP-DURATION 0", "IDMP-DURATION must be between 1 and 86400 seconds"),
        ("XCFGSET s IDMP-MAXSIZE 10001", "IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("XCFGSET s IDMP-MAXSIZE 1 IDMP-MAXSIZE 2", "IDMP-MAXSIZE specified multiple times"),
        ("XCFGSET s IDMP-MAXSIZE 5", "no such key"),
        ("XIDMPRECORD none p i 1-1", "no such key"),
        ("XIDMPRECORD none p i 1-x", "Invalid stream ID"),
        ("XIDMPRECORD none p i", "wrong number of arguments"),
        ("XREAD COUNT 5 MAXCOUNT 4 STREAMS s 0", "MAXCOUNT"),
        ("XNACK s g LOUD IDS 1 1-1", "mode must be SILENT, FAIL, or FATAL"),
        ("XNACK s g FAIL IDS 2 1-1", "number of IDs doesn't match numids"),
        ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", "min-idle-time must be a positive integer"),
    ],
)
def test_invalid_arguments_of_newer_commands_are_refused(line: Line, words: str, told: str) -> None:
    assert told in line(*words.split())
    assert line("EXISTS", "s") == 0


def test_reads_are_bounded_over_all_streams(line: Line) -> None:
    for key in "st":
        for n in range(1, 6):
            line("XADD", key, f"{n}-0", "a", "x" * 100)
    found = line("XREAD", "MAXCOUNT", 7, "STREAMS", "s", "t", "0", "0")
    assert [len(rows) for _, rows in found] == [5, 2]
    found = line("XREAD", "MAXSIZE", 250, "STREAMS", "s", "t", "0", "0")
    assert [(key, len(rows)) for key, rows in found] == [(b"s", 2)]
    assert len(line("XREAD", "MAXSIZE", 1, "STREAMS", "s", "0")[0][1]) == 1
    line("XGROUP", "CREATE", "s", "g", "0")
    found = line("XREADGROUP", "GROUP", "g", "c", "MAXSIZE", 250, "STREAMS", "s", ">")
    assert len(found[0][1]) == line("XPENDING", "s", "g")[0] == 2


def test_claims_in_reads_and_entries_given_back(line: Line) -> None:
    for n in range(1, 4):
        line("XADD", "s", f"{n}-0", "n", n)
    line("XGROUP", "CREATE", "s", "g", "0")
    line("XREADGROUP", "GROUP", "g", "alice", "COUNT", 2, "STREAMS", "s", ">")
    assert line("XNACK", "s", "g", "FAIL", "IDS", 1, "2-0") == 1
    [[key, rows]] = line("XREADGROUP", "GROUP", "g", "bob", "CLAIM", 0, "STREAMS", "s", ">")
    assert key == b"s"
    assert [row[0] for row in rows] == [b"2-0", b"1-0", b"3-0"]
    assert [row[3] for row in rows] == [1, 1, 0]
    assert rows[2][2] == 0
    assert (
        line("XREADGROUP", "GROUP", "g", "bob", "CLAIM", 100_000, "STREAMS", "s", ">") == Absent()
    )
    assert line("XNACK", "s", "g", "FATAL", "IDS", 1, "1-0") == 1
    assert line("XPENDING", "s", "g", "-", "+", 10)[0] == [b"1-0", b"", -1, (1 << 63) - 1]


SETUP = (
    "XADD s 1-1 a b", "XADD s 2-1 a b", "XADD s 3-1 a b", "XGROUP CREATE s g 0",
    "XGROUP CREATE s h 0", "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "XREADGROUP GROUP h c COUNT 1 STREAMS s >",
)  # fmt: skip
NEW = (
    "XDELEX s ACKED IDS 1 1-1", "XACKDEL s g ACKED IDS 1 1-1", "XACKDEL s h ACKED IDS 1 1-1",
    "XDELEX s DELREF IDS 2 2-1 9-9", "XPENDING s g", "XDELEX s IDS 1 3-1", "XLEN s",
    "XACKDEL s none IDS 1 1-1", "XDELEX none IDS 1 1-1", "XDELEX s IDS 0 1-1",
    "XDELEX s IDS 2 1-1", "XDELEX s KEEPREF ACKED IDS 1 1-1", "XDELEX s KEEPREF", "XACKDEL s g x",
    "XACKDEL s g IDS 1 x", "XINFO STREAM s",
)  # fmt: skip


def replies(port: int, commands: tuple[str, ...]) -> list[Reply]:
    """What a server answers to these behind SETUP."""
    with Line(port) as line:
        for words in SETUP:
            line(*words.split())
        return [line(*words.split()) for words in commands]


def test_the_new_commands_do_as_redis_does(redis_peer: Peer, tmp_path: Path) -> None:
    with serving(tmp_path / "store", profile="valkey-9.2") as served:
        assert replies(served.port, NEW) == replies(redis_peer.port, NEW)


def test_the_rest_is_that_of_9_1(valkey_peer: Peer, tmp_path: Path) -> None:
    new = {each.name for each in table_of("valkey-9.2").commands.values()}
    assert new - {each.name for each in table_of("valkey-9").commands.values()} == {
        "xdelex", "xackdel",
    }  # fmt: skip
    asked = (
        "XTRIM s MAXLEN 1 KEEPREF", "XADD s KEEPREF MAXLEN 1 * a b", "XREAD STREAMS s +",
        "XREAD STREAMS s", "XREADGROUP GROUP g c CLAIM 0 STREAMS s >", "XNACK s g FAIL IDS 1 1-1",
        "MULTI", "WATCH k", "EXEC", "XADD s IDMP p i * a b", "XINFO GROUPS s",
    )  # fmt: skip
    with serving(tmp_path / "store", profile="valkey-9.2") as served:
        assert replies(served.port, asked) == replies(valkey_peer.port, asked)
        with Line(served.port) as line:
            assert line("HELLO")[:4] == [b"server", b"valkey", b"version", b"9.2.0"]
            assert b"valkey_version:9.2.0" in line("INFO", "server")
