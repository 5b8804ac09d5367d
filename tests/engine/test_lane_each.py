"""Prevents entries of several callers, committed together, that one of them would not have alone.

Each is an add by itself: the IDs that are told are those of entries that are there, in their order,
and of the others nothing is there. Frames and crash points are those of every commit of the lane.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.engine.lane.loading import native_or_none
from logstore.recovery.check import check
from logstore.wire.server.group_commit import HELD_MAX_ADDS
from tests import seeds
from tests.support.inside import engine_of, follow, lane_commits

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")

Store = logstore.Store[Any]
STREAMS = 12
ODD: list[Any] = [{}, {b"n": object()}, {b"n": b"x" * (1 << 20)}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose nodes are full soon."""
    with logstore.open(
        tmp_path / "store", background=False, encoding=None, node_max_entries=7
    ) as opened:
        yield opened


def add_each(store: Store, entries: list[Any]) -> list[logstore.StreamID]:
    """The IDs of those that were committed."""
    told: list[logstore.StreamID | None] = []
    opened_of(store).add_each_plain(entries, told)
    return [id for id in told if id is not None]


def test_what_is_told_is_there_and_nothing_else(store: Store) -> None:
    seed = seeds.seed()
    print(f"{seeds.GIVEN}={seed}")
    draw = random.Random(seed)
    expected: dict[bytes, list[Any]] = {b"s%d" % number: [] for number in range(STREAMS)}
    alone = all_in = 0
    for _ in range(200):
        entries = []
        for _ in range(draw.randrange(1, 64)):
            name = b"s%d" % min(draw.randrange(STREAMS), draw.randrange(STREAMS))
            fields: Any = {b"n": b"%d" % draw.randrange(1000), b"a": "\u00e9\u20ac"}
            if draw.random() < 0.01:
                fields = draw.choice(ODD)
            entries.append((name, fields, None))
        at = 0
        while at < len(entries):
            told = add_each(store, entries[at:])
            for (name, fields, _), id in zip(entries[at:], told, strict=False):
                expected[name].append((id, {b"n": fields[b"n"], b"a": "\u00e9\u20ac".encode()}))
            at += len(told)
            if at < len(entries):
                alone += 1
                name, fields, _ = entries[at]
                if fields not in ODD or fields is ODD[2]:
                    expected[name].append((store.stream(name).add(fields), encoded(fields)))
                at += 1
            else:
                all_in += 1
        if draw.random() < 0.2:
            follow(store)
    for name, rows in expected.items():
        assert [(entry.id, dict(entry.fields)) for entry in store.stream(name).range()] == rows
        assert [id for id, _ in rows] == sorted(id for id, _ in rows)
    assert lane_commits(store) < sum(map(len, expected.values())) / 3
    assert alone < all_in
    assert not check(store.path).damage


def encoded(fields: dict[bytes, Any]) -> dict[bytes, bytes]:
    """As it is read."""
    return {name: v.encode() if isinstance(v, str) else v for name, v in fields.items()}


def test_what_was_committed_before_a_failure_is_told(store: Store) -> None:
    for name in (b"a", b"b", b"c"):
        store.stream(name).add({b"n": b"0"})
        store.stream(name).add({b"n": b"0"})
    assert lane_commits(store)
    entries: list[Any] = [(b"a", {b"n": b"1"}, None), (b"new", {b"n": b"2"}, None)]
    entries += [(b"b", {b"n": b"3" * 500}, None), (b"c", {b"n": b"4"}, None)]
    follow(store)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    end = engine_of(store).wake.applied & 0xFFFFFFFF
    resource.setrlimit(resource.RLIMIT_FSIZE, (end + 400, old[1]))
    told: list[logstore.StreamID | None] = []
    try:
        with pytest.raises(logstore.Error):
            opened_of(store).add_each_plain(entries, told)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    there = {name: [entry.id for entry in store.stream(name).range()] for name in store.streams()}
    assert told[0] is not None
    assert told[-1] is None  # of the commit that failed; what stands behind that was not tried
    for (name, _, _), id in zip_longest(entries, told):
        assert (id is not None) == (len(there.get(name, [])) % 2 == 1)
    assert not engine_of(store).lock.held


def test_none_and_too_many(store: Store) -> None:
    store.stream("other").add({"n": 1})
    assert add_each(store, []) == []
    assert HELD_MAX_ADDS == 64
    many: list[Any] = [(b"a", {b"n": b"1"}, None)] * 65
    assert add_each(store, many) == []
    assert len(add_each(store, many[:64])) == 64
    with pytest.raises((TypeError, ValueError)):
        add_each(store, [(b"a", {b"n": b"1"})])
    with pytest.raises(TypeError):
        add_each(store, [("a", {b"n": b"1"}, None)])
    assert len(store.stream(b"a")) == 64
