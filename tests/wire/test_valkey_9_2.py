"""Prevents ``--compat valkey-9.2`` from being other than its published source says.

No 9.2 server was at hand. XDELEX and XACKDEL (valkey#4629) are said to have the words, replies and
meaning of Redis 8.2's, which therefore is the judge; the rest is Valkey 9.1's.
"""

from __future__ import annotations

from pathlib import Path

from logstore.wire.catalogue import table_of
from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply
from tests.wire.served import serving

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


def test_the_new_commands_do_as_redis_does(redis_peer: Peer, tmp_path: Path) -> None:
    found: list[list[Reply]] = []
    with serving(tmp_path / "store", profile="valkey-9.2") as served:
        for port in (served.port, redis_peer.port):
            with Line(port) as line:
                for words in SETUP:
                    line(*words.split())
                found.append([line(*words.split()) for words in NEW])
    assert found[0] == found[1]


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
    found: list[list[Reply]] = []
    with serving(tmp_path / "store", profile="valkey-9.2") as served:
        for port in (served.port, valkey_peer.port):
            with Line(port) as line:
                for words in SETUP:
                    line(*words.split())
                found.append([line(*words.split()) for words in asked])
        with Line(served.port) as line:
            assert line("HELLO")[:4] == [b"server", b"valkey", b"version", b"9.2.0"]
            assert b"valkey_version:9.2.0" in line("INFO", "server")
    assert found[0] == found[1]
