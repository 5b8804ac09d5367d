"""Prevents odd options of XADD and XTRIM from being answered in other words than the peers'."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.wire.table import Profile
from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import serving

WORDS = """
XADD k LIMIT 0 1-1 f v
XADD k LIMIT 5 1-1 f v
XADD k LIMIT -1 1-1 f v
XADD k LIMIT x 1-1 f v
XADD k LIMIT 0 foo f v
XADD k LIMIT
XADD k NOMKSTREAM LIMIT 0 1-1 f v
XADD k LIMIT 5 LIMIT 0 1-1 f v
XADD k LIMIT 0 LIMIT 5 1-1 f v
XADD k MAXLEN ~ 5 LIMIT 0 1-1 f v
XADD k LIMIT 0 MAXLEN ~ 5 2-1 f v
XADD k LIMIT 0 MAXLEN 5 3-1 f v
XADD k MAXLEN = 5 LIMIT 0 3-1 f v
XADD k KEEPREF KEEPREF 10-1 f v
XADD k KEEPREF DELREF 10-1 f v
XADD k KEEPREF MAXLEN 5 DELREF 10-1 f v
XADD k ACKED 12-2 f v
XADD k DELREF MAXLEN 5 12-3 f v
XADD k KEEPREF
XADD k DELREF *
XADD k DELREF * f
XTRIM k LIMIT 0
XTRIM k LIMIT 5
XTRIM k LIMIT -1
XTRIM k LIMIT 0 MAXLEN 5
XTRIM k LIMIT 0 MAXLEN ~ 5 LIMIT 4
XTRIM k MAXLEN 5 LIMIT 0
XTRIM k MAXLEN 5 LIMIT 0 DELREF
XTRIM k MAXLEN ~ 5 LIMIT 0
XTRIM k MAXLEN 5 KEEPREF KEEPREF
XTRIM k MAXLEN 5 KEEPREF DELREF
XTRIM k KEEPREF DELREF
XTRIM k LIMIT 0 KEEPREF DELREF
XTRIM k DELREF MAXLEN 5
XTRIM k MAXLEN 5 ACKED
XTRIM k MAXLEN 5 FOO
XTRIM k DELREF
XTRIM none LIMIT 0
XTRIM none KEEPREF DELREF
XTRIM none MAXLEN 5
XLEN k
""".strip().splitlines()


def profile_of(peer: Peer) -> Profile:
    """Whose replies are compared; skips where the peer is another version."""
    for start, profile in {"Redis 8.2": "redis-8.2", "Valkey 9": "valkey-9"}.items():
        if peer.version.startswith(start):
            return profile  # type: ignore[return-value]
    pytest.skip(f"{peer.version} is none of those that the words are of")


def test_odd_options_are_answered_in_the_peers_words(peer: Peer, tmp_path: Path) -> None:
    profile = profile_of(peer)
    with (
        serving(tmp_path / "store", profile=profile) as served,
        Line(served.port) as ours,
        Line(peer.port) as theirs,
    ):
        theirs("FLUSHALL")
        for line in WORDS:
            assert ours(*line.split()) == theirs(*line.split()), line


@pytest.mark.parametrize("mode", ["KEEPREF", "DELREF", "ACKED"])
def test_references_with_a_rough_trim_are_as_the_profile_has_them(
    peer: Peer, tmp_path: Path, mode: str
) -> None:
    """Redis 8.2 trims nothing then; 8.6, by its documentation, one entry after the other."""
    profile = profile_of(peer)
    if profile == "valkey-9":
        pytest.skip("Valkey does not know the modes")
    found = []
    with (
        serving(tmp_path / "a", profile=profile) as same,
        serving(tmp_path / "b", profile="redis-8.10") as newest,
        Line(same.port) as ours,
        Line(newest.port) as later,
        Line(peer.port) as theirs,
    ):
        theirs("FLUSHALL")
        for line in (ours, theirs, later):
            for number in range(1, 251):
                line("XADD", "k", f"{number}-1", "f", "v")
            found.append([
                line("XTRIM", "k", "MAXLEN", "~", "120", mode), line("XLEN", "k"),
                line("XTRIM", "k", "MINID", "~", "150", mode), line("XLEN", "k"),
                line("XADD", "k", "MAXLEN", "~", "20", mode, "300-1", "f", "v"), line("XLEN", "k"),
            ])  # fmt: skip
    assert found[0] == found[1]
    rough = [100, 150, 0, 150, b"300-1", 51]
    assert found[2] == (rough if mode == "KEEPREF" else [130, 120, 19, 101, b"300-1", 20])
