"""Prevents a number that info prints from being held against nothing: all types of info, and all
counters, are listed by introspection; each field is reckoned by the model, or stands in the short
list of exceptions with its reason."""

from __future__ import annotations

import inspect
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path

import logstore
from logstore.api import info
from logstore.engine.shm.metrics import COUNTERS
from tests.model import expected_info
from tests.model.beside_model import START_MS, StoreAndModel
from tests.model.commands import look_at_commands
from tests.model.groups import Group
from tests.model.walk import Tally


def kinds() -> dict[str, set[str]]:
    """Every type that info tells, with its fields."""
    found: dict[str, set[str]] = {}
    for name, kind in inspect.getmembers(info, inspect.isclass):
        own = is_dataclass(kind) and kind.__module__ == info.__name__
        if own and name not in expected_info.ELSEWHERE:
            found[name] = {each.name for each in fields(kind)}
    return found


def small(tmp_path: Path) -> StoreAndModel:
    """A store with something of everything."""
    both = StoreAndModel(tmp_path, 4096, 5)
    both.add_many(b"s", [((b"n", b"%d" % number),) for number in range(20)], 7)
    both.add_once(b"s", ((b"n", b"x"),), b"p", b"1")
    both.schedule(b"s", ((b"n", b"y"),), 500)
    both.expire(b"s", 90_000)
    of = both.model.streams[b"s"]
    both.store.stream("s").group("g", start="0")
    of.groups[b"g"] = Group((0, 0))
    both.group(b"s", b"g", "read", lambda it: it.read("alice", count=6),
               lambda of, it: of.read(it, b"alice", both.clock.ms, count=6))  # fmt: skip
    both.group(b"s", b"g", "nack", lambda it: it.nack(*list(of.entries)[:2]),
               lambda group, it: group.nack(it, list(of.entries)[:2]))  # fmt: skip
    both.tick(1000)
    both.delete(b"s", list(of.entries)[3:5], "keep", each=False)
    return both


def test_every_field_is_reckoned_or_is_an_exception_with_a_reason(tmp_path: Path) -> None:
    both = small(tmp_path)
    try:
        both.look(3)
    finally:
        both.close()
    looked_at = both.compared.seen
    for kind, names in kinds().items():
        apart = expected_info.APART.get(kind, {})
        assert set(apart) <= names, f"{kind} has no {set(apart) - names} any more"
        assert all(len(reason) > 5 for reason in apart.values())
        assert looked_at.get(kind, set()) == names - set(apart), kind
    assert sum(map(len, expected_info.APART.values())) <= 5
    names = {each.replace("_ns", "_s") for each in COUNTERS}
    names |= {"pins", "pinned_bytes", "oldest_pin_ms"}
    assert set(expected_info.APART_COUNTERS) < names
    assert set(both.store_counters) == names - set(expected_info.APART_COUNTERS)


def test_the_commands_print_every_field(tmp_path: Path) -> None:
    both = small(tmp_path)
    both.reopen(rebuild=True, meanwhile=lambda: look_at_commands(both))
    both.look()
    both.close()
    both.checked()
    assert both.what["commands"] == 6


def test_the_log_is_read_to_its_end(tmp_path: Path) -> None:
    """Else it would be compared with what was true a while ago."""
    both = small(tmp_path)
    both.follow()
    assert both.log.taken() == Tally()
    info = both.store.info()
    assert (info.applied_segment, info.applied_offset) == both.log.end
    both.close()


def test_info_does_not_count_expired_streams(tmp_path: Path) -> None:
    """A stream that is gone for everybody took along what was scheduled for it."""
    both = small(tmp_path)
    both.tick(100_000)
    assert both.store.info().streams == both.store.info().scheduled == 0
    both.look()
    both.awake()
    both.look()
    both.close()


def test_info_counts_a_commit_of_a_killed_process_once(tmp_path: Path) -> None:
    """Its commit is ended by the next writer, from the log."""
    both = small(tmp_path)
    for size in (5, 3000, 5):
        both.killed(b"s", ((b"v", b"x" * size),))
        both.look()
    both.roll()
    both.killed(b"s", ((b"other", b"y"),))
    both.look()
    both.reopen(rebuild=True)
    both.look()
    both.close()
    both.checked()


class Ticking:
    """A clock that goes on a little whenever it is asked."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        self.ms += 7
        return self.ms


def test_oldest_deleted_segment_ms_survives_a_rebuild(
    tmp_path: Path,
) -> None:
    clock, path = Ticking(), tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, clock=clock, background=False) as store:
        stream = store.stream("s")
        ids = list(stream.add_many([{"v": "x" * 3000}] * 200, batch=5))
        stream.delete(*ids[:150:2])
        store.compact(threshold=0.4)
        stream.delete(*ids[1:150:2])
        told = store.info()
    shutil.rmtree(path / "index")
    with logstore.open(path, clock=clock, background=False) as store:
        again = store.info()
        assert told.oldest_deleted_segment_ms > START_MS
        assert again.oldest_deleted_segment_ms == told.oldest_deleted_segment_ms
        assert again.deleted_bytes == told.deleted_bytes
        assert again.live_bytes == told.live_bytes
