"""Prevents requests that change very many entries from holding up the others in one commit, and
from telling, or doing, anything else than they would in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.wire import partial_commits
from logstore.wire.catalogue import service_of
from logstore.wire.resp import outgoing as reply_budget
from logstore.wire.resp.outgoing import Output, OutputBytes
from logstore.wire.resp.reply import Failure
from logstore.wire.session import Session
from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import serving

COUNT = 2_650
PART = 100
IDS = [b"%d-1" % at for at in range(1, COUNT + 1)]
FEW = [b"%d-1" % at for at in range(1, 40)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts so small that each command has very many."""
    from logstore.wire.commands import groupreads, pending

    for module in (partial_commits, groupreads, pending):
        for name in ("PART_ENTRIES", "PART_ITEMS"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, PART)
    monkeypatch.setattr(pending, "SCANNED_MAX", 2 * PART)
    monkeypatch.setattr(reply_budget, "RUN_BYTES", 20_000)  # a reply that is more goes on


def prepared() -> list[list[bytes]]:
    """What is asked first: a stream of which a group has read most, with gaps, and many keys."""
    asked = [[b"XADD", b"s", id, b"f", b"v" * (number % 7)] for number, id in enumerate(IDS)]
    asked += [[b"XADD", b"t", id, b"f", b"v"] for id in FEW]
    for key in (b"s", b"t"):
        asked += [[b"XGROUP", b"CREATE", key, name, b"0"] for name in (b"g", b"n")]
    asked += [[b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"2000", b"STREAMS", b"s", b">"]]
    asked += [[b"XDEL", b"s", id] for id in IDS[3::50]]
    asked += [[b"XADD", b"k%d" % at, b"1-1", b"f", b"v"] for at in range(3 * PART)]
    return asked


GROUP = b"GROUP"
REQUESTS: list[list[bytes]] = [
    [b"XREADGROUP", GROUP, b"n", b"c", b"STREAMS", b"s", b">"],
    [b"XREADGROUP", GROUP, b"n", b"c", b"STREAMS", b"s", b">"],
    [b"XREADGROUP", GROUP, b"g", b"c", b"COUNT", b"333", b"STREAMS", b"t", b"s", b">", b">"],
    [b"XREADGROUP", GROUP, b"g", b"d", b"NOACK", b"STREAMS", b"s", b"t", b">", b">"],
    [b"XREADGROUP", GROUP, b"g", b"c", b"STREAMS", b"s", b"0"],
    [b"XREADGROUP", GROUP, b"g", b"c", b"COUNT", b"777", b"STREAMS", b"s", b"t", b"9-1", b"0"],
    [b"XREADGROUP", GROUP, b"g", b"nobody", b"STREAMS", b"s", b"0"],
    [b"XCLAIM", b"s", b"g", b"e", b"0", *IDS[:900], *IDS[:5]],
    [b"XCLAIM", b"s", b"n", b"e", b"0", *reversed(IDS), b"JUSTID"],
    [b"XCLAIM", b"s", b"n", b"e", b"99999999", *IDS],
    [b"XAUTOCLAIM", b"s", b"g", b"d", b"0", b"-", b"COUNT", b"1111"],
    [b"XAUTOCLAIM", b"s", b"g", b"d", b"0", b"700-1", b"COUNT", b"1111", b"JUSTID"],
    [b"XAUTOCLAIM", b"s", b"n", b"d", b"0", b"-", b"COUNT", b"100000"],
    [b"XAUTOCLAIM", b"s", b"g", b"d", b"99999999", b"-", b"COUNT", b"150"],
    [b"XACK", b"s", b"n", *IDS[:1500], *IDS[:9]],
    [b"XACK", b"s", b"none", *IDS],
    [b"XACKDEL", b"s", b"n", b"IDS", b"%d" % len(IDS[1000:]), *IDS[1000:]],
    [b"XDELEX", b"s", b"ACKED", b"IDS", b"405", *IDS[:400], *IDS[:5]],
    [b"XDEL", b"s", *IDS[:600], *IDS[:600]],
    [b"XDEL", b"s", *IDS, b"no ID"],
    [b"EXISTS", *[b"k%d" % at for at in range(5 * PART)] * 2],
    [b"DEL", *[b"k%d" % at for at in range(2 * PART)] * 2],
    [b"UNLINK", *[b"k%d" % at for at in range(4 * PART)]],
    [b"XPENDING", b"s", b"g"],
    [b"XPENDING", b"s", b"n"],
    [b"XREADGROUP", GROUP, b"none", b"c", b"STREAMS", b"s", b">"],
]


def test_replies_and_changes_are_those_of_one_commit(tmp_path: Path, redis_peer: Peer) -> None:
    """Each command beside Redis, and what is there afterwards."""
    theirs = Line(redis_peer.port)
    with serving(tmp_path / "store", profile="redis-8.2") as served, Line(served.port) as ours:
        for line in (ours, theirs):
            if line is theirs:
                line("FLUSHALL")
            for words in prepared():
                line(*words)
        for words in REQUESTS:
            mine, its = ours(*words), theirs(*words)
            assert mine == its, words[:8]
        for tail in ([b"s", b"g", b"-", b"+", b"10000"], [b"s", b"n", b"-", b"+", b"10000"]):
            told = [
                [(id, consumer, count) for id, consumer, _, count in line(b"XPENDING", *tail)]
                for line in (ours, theirs)
            ]
            assert told[0] == told[1]
        assert ours("XRANGE", "s", "-", "+") == theirs("XRANGE", "s", "-", "+")
        for command in ("XINFO GROUPS s", "XINFO GROUPS t", "DBSIZE"):
            assert ours(*command.split()) == theirs(*command.split())
    theirs("FLUSHALL")
    theirs.close()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session on a store as ``prepared`` fills it."""
    with logstore.open(tmp_path / "store", background=False) as store:
        made = Session(service_of(store))
        run(made, *prepared())
        yield made


def run(session: Session, *requests: list[bytes]) -> list[Any]:
    """The replies."""
    return session.database.runner.run([session.step(words) for words in requests])


@pytest.mark.parametrize(
    "words", [REQUESTS[0], REQUESTS[4], REQUESTS[8], REQUESTS[12], REQUESTS[14], REQUESTS[18]],
    ids=lambda words: words[0].decode(),
)  # fmt: skip
def test_others_change_something_between_any_two_parts(
    session: Session, words: list[bytes]
) -> None:
    """Each part is a commit of its own, and no larger than it may be; one commit inside MULTI."""
    if words[0] not in (b"XREADGROUP", b"XDEL"):
        run(session, REQUESTS[0])
    runner, step, rounds = session.database.runner, session.step(words), 0
    output = OutputBytes(2, 1 << 30, lambda: True)
    while not (found := runner.run([step], output, whole=False)):
        rounds += 1
        assert run(session, [b"XADD", b"other", b"*", b"f", b"v"]) != []
    assert rounds >= len(IDS) // (2 * PART) - 7
    assert not isinstance(found[0], Failure)
    before = session.service.commits
    run(session, [b"XGROUP", b"CREATE", b"s", b"m", b"0"])
    steps = [session.step([b"XREADGROUP", GROUP, b"m", b"c", b"STREAMS", b"s", b">"])]
    runner.transaction(steps, None, Output())
    assert session.service.commits - before == 2


def test_a_group_destroyed_between_parts_gives_the_reply_so_far(session: Session) -> None:
    """Nothing more can be done then; before the first part it is refused."""
    runner = session.database.runner
    step = session.step(REQUESTS[0])
    assert runner.run([step], Output(), whole=False) == []
    run(session, [b"XGROUP", b"DESTROY", b"s", b"n"])
    ((key, entries),) = runner.run([step], Output(), whole=False)[0].items
    assert key == b"s"
    assert [id for id, _ in entries] == [id for id in IDS[: PART + 5] if id not in IDS[3::50]][
        :PART
    ]
    (refused,) = run(session, REQUESTS[0])
    assert isinstance(refused, Failure)
    assert refused.text.startswith("NOGROUP")


def test_a_read_does_not_take_over_what_its_own_parts_took(session: Session) -> None:
    """What is claimed is at once idle for long enough: it would be handed out for ever."""
    words = [b"XREADGROUP", GROUP, b"g", b"z", b"CLAIM", b"0", b"STREAMS", b"s", b">"]
    ((_, entries),) = run(session, words)[0].items
    there = [id for id in IDS if id not in IDS[3::50]]
    assert sorted(row[0] for row in entries) == sorted(there)
    assert len(entries) == len(there)


def test_a_read_in_parts_ends_at_the_end_of_its_beginning(session: Session) -> None:
    """A read that others outrun ends where the stream ended when it began."""
    runner, step = session.database.runner, session.step(REQUESTS[0])
    found: list[Any] = []
    while not found:
        run(session, *[[b"XADD", b"s", b"*", b"f", b"v"]] * (2 * PART))
        found = runner.run([step], Output(), whole=False)
    ((_, entries),) = found[0].items
    assert len(IDS) - 200 < len(entries) < len(IDS) + 4 * PART


def test_the_slow_log_has_the_whole_of_it(session: Session) -> None:
    """Prevents a long request that no line tells of, since each part was short."""
    log = session.service.slowlog
    log.slower_us = 1000
    log.clear()
    runner, step = session.database.runner, session.step(REQUESTS[0])
    while not runner.run([step], Output(), whole=False):
        pass
    assert [row[3][0] for row in log.newest(-1)] == [b"XREADGROUP"]  # type: ignore[index]
