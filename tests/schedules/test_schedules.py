"""Prevents scheduled entries that are lost, wrong, early, in another order, or not cancelled."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import OptionError, ScheduleKey, StreamID, TooLargeError
from logstore.api.scheduling import DUE_MAX_MS, FIELDS_MAX_BYTES, when
from logstore.api.store import Store
from logstore.engine.features import due_entries
from logstore.errors import (
    CorruptFrameError,
    EntryTypeError,
    InvalidEntryError,
    ReadOnlyError,
    UsageError,
)
from logstore.features.schedule_rows import Scheduled, Unscheduled, packed
from logstore.format import Kind
from logstore.ids import MAX_ID
from logstore.log import frame
from tests.schedules.due import opened, values, waiting
from tests.support.inside import START_MS, FixedClock, do_due_work


def test_an_entry_comes_when_its_time_has_come(store: Store[Any], clock: FixedClock) -> None:
    """Not a millisecond earlier, with an ID of the moment, and once."""
    stream = store.stream("a")
    key = stream.schedule({"n": "1", "more": "x"}, at=START_MS + 50)
    assert key is not None
    assert key.due_ms == START_MS + 50
    clock.ms += 49
    do_due_work(store)
    assert len(stream) == 0
    [entry] = stream.scheduled()
    assert (entry.key, entry.fields["n"], entry.pairs[1]) == (key, "1", ("more", "x"))
    assert entry.due == datetime.fromtimestamp((START_MS + 50) / 1000, UTC)
    clock.ms += 3
    for _ in range(2):
        do_due_work(store)
        assert [each.id for each in stream] == [StreamID(START_MS + 52, 0)]
        assert list(stream.scheduled()) == []


def test_entries_come_in_the_order_of_time_then_of_scheduling(
    store: Store[Any], clock: FixedClock
) -> None:
    """Also over several streams and commits, and behind entries that were added meanwhile."""
    a, b = store.stream("a"), store.stream("b")
    for number in range(2 * due_entries.BATCH_ENTRIES):
        (a, b)[number % 2].schedule({"n": str(number)}, at=START_MS + 10 + number % 7 // 3)
    a.schedule({"n": "late"}, at=START_MS + 5_000)
    clock.ms += 1_000
    a.add({"n": "first"})
    do_due_work(store)
    order = sorted(range(2 * due_entries.BATCH_ENTRIES), key=lambda number: number % 7 // 3)
    assert values(a) == ["first", *(str(each) for each in order if each % 2 == 0)]
    assert values(b) == [str(each) for each in order if each % 2]
    assert waiting(a) == ["late"]
    assert a.last_id.ms == START_MS + 1_000


def test_the_nodes_are_those_of_plain_adds(tmp_path: Path, clock: FixedClock) -> None:
    """Byte for byte, whatever the sizes of the entries."""
    rows = [{"n": str(number), "v": "x" * (number * 37 % 900)} for number in range(300)]
    bytes_of: list[list[bytes]] = []
    for name in ("plain", "scheduled"):
        with opened(tmp_path / name, clock) as store:
            stream = store.stream("a")
            for row in rows:
                if name == "plain":
                    stream.add(row)
                else:
                    stream.schedule(row, at=START_MS)
            do_due_work(store)
            found = (stream.info().radix_tree_keys, stream.info().node_bytes)
            bytes_of.append([repr(list(stream)).encode(), repr(found).encode()])
    assert bytes_of[0] == bytes_of[1]


def test_the_past_is_as_good_as_now(store: Store[Any], clock: FixedClock) -> None:
    """Such an entry is added when somebody wakes; it is scheduled until then."""
    stream = store.stream("a")
    stream.schedule({"n": "1"}, at=START_MS - 1)
    stream.schedule({"n": "2"}, after=0)
    assert waiting(stream) == ["1", "2"]
    do_due_work(store)
    assert values(stream) == ["1", "2"]


def test_a_clock_that_is_put_back_or_forward(store: Store[Any], clock: FixedClock) -> None:
    """Times are by the clock at the moment, whatever it said before."""
    stream = store.stream("a")
    stream.schedule({"n": "1"}, at=START_MS + 100)
    clock.ms -= 50_000
    stream.schedule({"n": "2"}, after=10)
    do_due_work(store)
    assert waiting(stream) == ["2", "1"]
    clock.ms += 100_000
    do_due_work(store)
    assert values(stream) == ["2", "1"]


def test_cancel(store: Store[Any], clock: FixedClock) -> None:
    """By the key or its text; once; not in another stream; not when it was added."""
    stream = store.stream("a")
    keys = [stream.schedule({"n": str(number)}, after=number) for number in range(4)]
    assert not store.stream("b").cancel(str(keys[1]))
    store.create("b")
    assert not store.stream("b").cancel(str(keys[1]))
    assert stream.cancel(str(keys[1]))
    assert not stream.cancel(str(keys[1]))
    assert keys[2] is not None
    assert stream.cancel(keys[2])
    assert stream.info().scheduled == 2
    clock.ms += 10_000
    do_due_work(store)
    assert values(stream) == ["0", "3"]
    assert keys[3] is not None
    assert not stream.cancel(keys[3])
    for wrong in ("", "1", "1-", "x-1", "-1-1", "1-1-1", (1, 2, 3), (1, -1), (1, True), 5, None):
        with pytest.raises(OptionError):
            stream.cancel(wrong)  # type: ignore[arg-type]


def test_dropping_a_stream_cancels(store: Store[Any], clock: FixedClock) -> None:
    """A stream of the same name that is made later gets nothing of it; others keep theirs."""
    a, b = store.stream("a"), store.stream("b")
    key = a.schedule({"n": "1"}, after=1)
    b.schedule({"n": "2"}, after=2)
    with store.transaction() as tx:
        for number in range(2500):
            tx.stream("a").schedule({"n": "x"}, after=number)
    store.drop("a")
    assert (list(a.scheduled()), store.info().scheduled) == ([], 1)
    a.add({"n": "new"})
    assert key is not None
    assert not a.cancel(key)
    clock.ms += 10_000_000
    do_due_work(store)
    assert (values(a), values(b)) == (["new"], ["2"])


def test_create(store: Store[Any]) -> None:
    """Scheduling makes the stream, unless it must not."""
    assert store.stream("a").schedule({"n": "1"}, after=5, create=False) is None
    assert "a" not in store
    store.stream("a").schedule({"n": "1"}, after=5)
    assert "a" in store
    assert store.stream("a").schedule({"n": "2"}, after=5, create=False) is not None
    assert len(store.stream("a")) == 0


def test_info_tells(store: Store[Any], clock: FixedClock) -> None:
    """How many there are, and when the next is due; metrics tell how many were added."""
    stream = store.stream("a")
    stream.add({"n": "0"})
    assert (stream.info().scheduled, stream.info().next_due) == (0, None)
    stream.schedule({"n": "2"}, at=START_MS + 2_000)
    stream.schedule({"n": "1"}, at=START_MS + 1_000)
    due = datetime.fromtimestamp(START_MS / 1000 + 1, UTC)
    assert (stream.info().scheduled, stream.info().next_due) == (2, due)
    told = stream.info().as_dict()
    assert (told["scheduled"], told["next-due"]) == (2, due.isoformat())
    assert store.info().scheduled == 2
    clock.ms += 1_500
    do_due_work(store)
    assert (stream.info().scheduled, store.info().scheduled) == (1, 1)
    assert store.metrics()["scheduled_added"] == 1


def test_a_stream_without_an_id_left_keeps_nobody_waiting(
    store: Store[Any], clock: FixedClock
) -> None:
    """Its entries are put off, and come when there are IDs again; those of others come now."""
    full, other = store.stream("full"), store.stream("other")
    full.add({"n": "last"}, id=MAX_ID)
    full.schedule({"n": "1"}, after=1)
    other.schedule({"n": "2"}, after=2)
    clock.ms += 3_000
    do_due_work(store)
    assert (waiting(full), values(other)) == (["1"], ["2"])
    full.delete(MAX_ID)
    store.drop("full")
    full.schedule({"n": "3"}, after=1)
    clock.ms += due_entries.PUT_OFF_MS
    do_due_work(store)
    assert values(full) == ["3"]


def test_keys_are_text_and_back(store: Store[Any]) -> None:
    """They survive being printed; they sort by time."""
    key = store.stream("a").schedule({"n": "1"}, at=START_MS + 5)
    assert isinstance(key, ScheduleKey)
    assert str(key) == f"{START_MS + 5}-{key.number}"
    assert key.due == datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=5)
    later = store.stream("a").schedule({"n": "1"}, at=START_MS + 6)
    assert later is not None
    assert later > key


@pytest.mark.parametrize(
    ("at", "after"),
    [
        (None, None), (1, 1), (datetime(2020, 1, 1), None), (-1, None), (True, None),  # noqa: DTZ001
        (DUE_MAX_MS + 1, None), (1.5, None), ("1", None), (None, -1),
        (datetime(1969, 12, 31, tzinfo=UTC), None), (None, timedelta(microseconds=-1)),
        (None, float("nan")), (None, float("inf")), (None, "1"), (None, True),
    ],
)  # fmt: skip
def test_bad_times_are_refused(store: Store[Any], at: Any, after: Any) -> None:
    """Before anything changes: the stream is not even made."""
    with pytest.raises(OptionError):
        store.stream("a").schedule({"n": "1"}, at=at, after=after)
    assert "a" not in store


def test_a_schedule_without_a_time_is_refused(store: Store[Any]) -> None:
    with pytest.raises(OptionError, match=r"at= .* after=, or every= or cron="):
        store.stream("a").schedule({"n": "1"})


def test_bad_entries_are_refused(store: Store[Any]) -> None:
    """As an add refuses them, and what is too large to be kept."""
    stream = store.stream("a")
    for wrong, error in (
        ({}, InvalidEntryError), ({"n": None}, EntryTypeError), ("n", EntryTypeError),
        ({"n": b"x" * FIELDS_MAX_BYTES}, TooLargeError),
    ):  # fmt: skip
        with pytest.raises(error):
            stream.schedule(wrong, after=1)  # type: ignore[arg-type]
    assert "a" not in store
    stream.schedule({"n": b"x" * (FIELDS_MAX_BYTES - 1)}, after=0)
    do_due_work(store)
    assert len(values(stream)[0]) == FIELDS_MAX_BYTES - 1


def test_times_between_two_milliseconds_round_up(clock: FixedClock) -> None:
    """Nothing comes early."""
    moment = datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert when(moment, None, clock).ms == 1_893_456_000_001
    east = timezone(timedelta(hours=5))
    assert when(moment.astimezone(east), None, clock).ms == 1_893_456_000_001
    assert when(moment.replace(microsecond=0), None, clock).ms == 1_893_456_000_000
    assert [when(None, each, clock).ms for each in (0.3, 0.0001, 1, 0)] == [300, 1, 1000, 0]
    assert when(None, timedelta(microseconds=1), clock).ms == 1


def test_a_read_only_store_tells_and_changes_nothing(
    store: Store[Any], clock: FixedClock, tmp_path: Path
) -> None:
    """It lists what waits, and adds nothing, also when its time has come."""
    store.stream("a").schedule({"n": "1"}, after=1)
    clock.ms += 5_000
    with logstore.open(tmp_path / "store", encoding="utf-8", readonly=True) as looking:
        stream = looking.stream("a")
        assert waiting(stream) == ["1"]
        assert stream.read("0", timeout=0.05) == []
        with pytest.raises(ReadOnlyError):
            stream.schedule({"n": "2"}, after=1)
        do_due_work(store)
        assert (waiting(stream), values(stream)) == ([], ["1"])


def test_a_batch_does_not_end_in_the_middle_of_an_entry(
    store: Store[Any], clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large entries make small batches; each is added, in order."""
    monkeypatch.setattr(due_entries, "BATCH_BYTES", 1000)
    stream = store.stream("a")
    for number in range(10):
        stream.schedule({"n": str(number), "v": "x" * 600}, after=1)
    clock.ms += 2_000
    do_due_work(store)
    assert values(stream) == [str(number) for number in range(10)]
    assert store.metrics()["commits"] == 10 + 5


BODIES = [
    Scheduled(7, 1_000, packed([b"field", b""])),
    Unscheduled(7, True, ((1_000, 64), (2_000, 1 << 40))),
    Unscheduled(7, False, ((0, 1),)),
]


@pytest.mark.parametrize("body", BODIES)
def test_frames_survive(body: Scheduled | Unscheduled) -> None:
    """What is written is what is read; what was cut off is refused."""
    payload = frame.encode(body)
    assert frame.decode(Kind.SCHEDULE, payload) == body
    for size in range(len(payload)):
        cut = payload[:size]
        try:
            found = frame.decode(Kind.SCHEDULE, cut)
        except CorruptFrameError:
            continue
        assert isinstance(found, Unscheduled), "whole keys are a frame, too"
        assert isinstance(body, Unscheduled)
        assert found.keys == body.keys[: len(found.keys)]


@pytest.mark.parametrize(
    "payload",
    [
        b"", bytes(8), bytes(9), bytes(8) + b"\x03", bytes(17), bytes(17) + b"\x05\0\0\0abcd",
        bytes(17) + b"\x01\0\0\0a",
    ],
)  # fmt: skip
def test_frames_that_hold_no_schedule_are_refused(payload: bytes) -> None:
    """Unknown forms, lengths beyond the end, a field without its value."""
    with pytest.raises(CorruptFrameError):
        frame.decode(Kind.SCHEDULE, payload)


def test_transactions(store: Store[Any], clock: FixedClock) -> None:
    """Scheduling and cancelling are part of one, all or nothing."""
    stream = store.stream("a")
    old = stream.schedule({"n": "old"}, after=1)
    assert old is not None
    with suppress(RuntimeError), store.transaction() as tx:
        tx.stream("a").schedule({"n": "never"}, after=1)
        tx.stream("a").cancel(old)
        raise RuntimeError
    assert waiting(stream) == ["old"]
    with store.transaction() as tx:
        tx.stream("a").add({"n": "now"})
        made = tx.stream("a").schedule({"n": "new"}, after=2)
        absent = tx.stream("b").schedule({"n": "none"}, after=2, create=False)
        gone = tx.stream("a").cancel(old)
        with pytest.raises(UsageError):
            _ = made.result
        with pytest.raises(OptionError):
            tx.stream("a").schedule({"n": "x"})
    assert (gone.result, absent.result) == (True, None)
    assert isinstance(made.result, ScheduleKey)
    assert [each.key for each in stream.scheduled()] == [made.result]
    clock.ms += 3_000
    do_due_work(store)
    assert values(stream) == ["now", "new"]
