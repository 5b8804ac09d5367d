"""Prevents compaction from touching what is not worth it, or from joining what must stay apart:
each threshold at both of its sides.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction import compactor as background
from logstore.compaction import measure
from logstore.compaction.compactor import Compactor, Victim
from logstore.compaction.node_choice import Group, NodeAsRead, NodeChooser, _Merger
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.background import no_pause
from logstore.format import Role
from logstore.ids import StreamID
from logstore.index.keys import Locator, SegmentRow
from logstore.options import StoreLimits

FIELDS = (b"a", b"b")


def _source(
    ms: int, count: int, *, dead: int = 0, stream: int = 1, fields: tuple[bytes, ...] = FIELDS
) -> NodeAsRead:
    """A node of so many entries, the first ``dead`` of them deleted; its IDs begin at ms-0."""

    def flat(at: int) -> list[bytes]:
        return [part for name in fields for part in (name, b"%d" % at)]

    lp = codec().new_node(ms, 0, flat(0))
    for at in range(1, count):
        lp, _ = codec().append(lp, ms, 0, ms + at, 0, flat(at))
    vector = ((1 << dead) - 1).to_bytes((dead + 7) // 8, "little")
    locator = Locator(fmt.position(3, 64), len(lp), count, StreamID(ms + count - 1, 0), vector)
    return NodeAsRead(stream, StreamID(ms, 0), locator, lp)


def _groups(limits: StoreLimits, *sources: NodeAsRead | None) -> list[Group]:
    merger = _Merger(limits)
    found = [group for source in sources for group in merger.take(source)]
    return found + list(merger.flush())


def _ids(group: Group) -> list[int]:
    master = group.parts[0].master
    return [ms for _, ms, _ in codec().ids(group.lp, *master)] if group.lp else []


LIMITS = StoreLimits(node_max_entries=10, node_max_bytes=0)


@pytest.mark.parametrize(
    ("sources", "sizes"),
    [
        ([_source(100, 4), _source(200, 6)], [10]),  # as many as the limit allows
        ([_source(100, 4), _source(200, 7)], [4, 7]),  # one more
        ([_source(100, 5), _source(200, 5)], [5, 5]),  # neither is below half of it
        ([_source(100, 5), _source(200, 4)], [9]),
        ([_source(100, 9, dead=5), _source(200, 6)], [10]),  # dead ones do not count
        ([_source(100, 2), _source(200, 2), _source(300, 2)], [6]),
        ([_source(100, 2), None, _source(200, 2)], [2, 2]),  # one between them stays
        ([_source(100, 2), _source(200, 2, stream=2)], [2, 2]),
        ([_source(100, 2), _source(200, 2, fields=(b"a",))], [2, 2]),
        ([_source(100, 3, dead=3), _source(200, 2)], [2]),  # nothing is left of the first
        ([_source(100, 2), _source(200, 3, dead=3), _source(300, 2)], [4]),
        ([_source(100, 3, dead=3)], [0]),
        ([], []),
        ([None, None], []),
    ],
)
def test_which_neighbours_become_one(sources: list[NodeAsRead | None], sizes: list[int]) -> None:
    found = _groups(LIMITS, *sources)
    assert [group.live for group in found] == sizes
    assert [len(_ids(group)) for group in found] == sizes
    parts = [part for group in found for part in group.parts]
    assert parts == [source for source in sources if source is not None]
    living = [
        source.master.ms + at
        for source in sources
        if source is not None
        for at in range(source.locator.entries - source.live, source.locator.entries)
    ]
    assert [ms for group in found for ms in _ids(group)] == living
    assert all(group.last == group.parts[-1].locator.last for group in found)


def test_bytes_of_a_node() -> None:
    """A joined node may have as many bytes as the limit, and no more; no limit of entries."""
    sources = _source(100, 3), _source(200, 300)
    (joined,) = _groups(StoreLimits(node_max_entries=0, node_max_bytes=0), *sources)
    size = len(joined.lp)
    assert len(_groups(StoreLimits(node_max_entries=0, node_max_bytes=size), *sources)) == 1
    assert len(_groups(StoreLimits(node_max_entries=0, node_max_bytes=size - 1), *sources)) == 2


def test_which_nodes_are_rewritten() -> None:
    locator = _source(100, 8, dead=4).locator
    assert not NodeChooser(set(), 0.5).must(locator)  # not more than half
    assert NodeChooser(set(), 0.49).must(locator)
    assert NodeChooser({3}, 1.0).must(locator)
    assert not NodeChooser({4, 0}, 1.0).must(locator)


SIZE = 1 << 20
HEAD = fmt.SEGMENT_HEAD_BYTES
NOW = 10_000_000_000


class _Clock:
    def now_ms(self) -> int:
        return NOW


def _row(live: int, *, size: int = SIZE, age_ms: int = 10**9, nodes: int = 0) -> SegmentRow:
    return SegmentRow(Role.COMPACTED, live, nodes, size + HEAD, NOW - age_ms)


@pytest.fixture
def compactor(tmp_path: Path) -> Any:
    """Of a store with segments of 1 MiB, whose rows are given by the test."""
    options = {"segment_bytes": SIZE, "background": False}
    with logstore.open(tmp_path / "store", **options) as store:  # type: ignore[call-overload]
        engine = store._engine()
        made = Compactor(engine, Committer(engine))
        made._engine.clock = _Clock()
        yield made


def _victims(
    compactor: Compactor, patch: pytest.MonkeyPatch, *rows: SegmentRow, active: int = 99
) -> list[Victim]:
    numbered = dict(enumerate(rows, 1))
    patch.setattr(measure, "rows_and_active", lambda engine: (numbered, active))
    return compactor._victims()


def test_which_segments_are_emptied(compactor: Compactor, monkeypatch: pytest.MonkeyPatch) -> None:
    half = SIZE // 2
    found = _victims(compactor, monkeypatch, _row(half - 1), _row(half), _row(0), _row(SIZE))
    assert found == [Victim(3, 0, SIZE), Victim(1, half - 1, half + 1)]  # deadest first
    # Frames' heads are what lives, too.
    heads = half // fmt.FRAME_HEAD_BYTES + 1
    assert _victims(compactor, monkeypatch, _row(0, nodes=heads)) == []
    # The active one, and what is behind it, is left alone.
    assert _victims(compactor, monkeypatch, _row(0), _row(0), active=1) == []
    assert [each.number for each in _victims(compactor, monkeypatch, _row(0), active=2)] == [1]


def test_the_background_waits_a_minute_and_between_runs(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age_ms, count in ((59_999, 0), (-59_999, 0), (60_000, 1), (-60_000, 1)):
        assert len(_victims(compactor, monkeypatch, _row(0, age_ms=age_ms))) == count
    compactor._left = {1: time.monotonic() + 1000}
    assert _victims(compactor, monkeypatch, _row(0)) == []
    compactor._left = {1: time.monotonic() - 1}
    assert len(_victims(compactor, monkeypatch, _row(0))) == 1


def test_enough_must_come_of_it(compactor: Compactor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a segment, or a sixteenth of the log."""
    half = SIZE // 2
    small = _row(0, size=half)
    assert _victims(compactor, monkeypatch, small) == [Victim(1, 0, half)]
    assert _victims(compactor, monkeypatch, small._replace(live_bytes=1)) == []
    whole = [_row(SIZE)] * 16
    assert _victims(compactor, monkeypatch, _row(0), *whole) == []
    assert _victims(compactor, monkeypatch, _row(0), *whole[1:]) == []
    assert len(_victims(compactor, monkeypatch, _row(0), *whole[2:])) == 1


def test_a_round_is_not_too_long(compactor: Compactor, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_row(100_000), _row(200_000), _row(300_000)]
    for most, count in ((1, 1), (300_000, 2), (299_999, 1), (600_000, 3)):
        monkeypatch.setattr(background, "ROUND_BYTES", most)
        assert [each.number for each in _victims(compactor, monkeypatch, *rows)] == [1, 2, 3][
            :count
        ]


def test_tombstones_count_as_dead(compactor: Compactor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As counted; fewer, in proportion, when nodes went since."""
    row = _row(SIZE - 1000)
    compactor._tombstones = {1: (SIZE // 2, row.live_bytes)}
    assert _victims(compactor, monkeypatch, row) == [
        Victim(1, SIZE // 2 - 1000, SIZE // 2 + 1000)
    ]  # fmt: skip
    compactor._tombstones = {1: (SIZE // 2, 2 * row.live_bytes)}
    assert _victims(compactor, monkeypatch, row) == []
    assert compactor._live_bytes(1, row) == row.live_bytes - SIZE // 4


def test_tombstones_are_counted_now_and_then(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not twice at the same place of the log, nor within a minute."""
    counted: list[int] = []
    monkeypatch.setattr(
        background.erasure, "tombstoned_bytes", lambda *_: counted.append(1) or {1: 5}
    )
    monkeypatch.setattr(measure, "rows_and_active", lambda engine: ({1: _row(7)}, 9))
    compactor._counted_at = -1
    compactor._count_tombstones(no_pause)
    assert counted == [1]
    assert compactor._tombstones == {1: (5, 7)}
    compactor._counted_at = -1  # something was committed
    compactor._count_tombstones(no_pause)
    assert counted == [1]
    compactor._engine.wake.next_count_ms = 0  # a minute later
    compactor._count_tombstones(no_pause)
    assert counted == [1, 1]
    compactor._engine.wake.next_count_ms = 0
    compactor._count_tombstones(no_pause)
    assert counted == [1, 1]


def test_a_segment_is_as_old_as_what_follows_it() -> None:
    main, other = _row(0)._replace(role=Role.MAIN), _row(0)
    rows = {
        1: main._replace(born_ms=10), 2: other._replace(born_ms=20), 3: main._replace(born_ms=30),
        4: main._replace(born_ms=40),
    }  # fmt: skip
    assert background._sealed(rows) == {1: 30, 2: 20, 3: 40, 4: 40}
