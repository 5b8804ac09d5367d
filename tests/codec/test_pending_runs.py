"""Runs of pending entries: the compiled class does what the pure one does, byte for byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.codec.pending_run import ID_BYTES, RUN_MAX_ENTRIES

FIRST, LAST = bytes(ID_BYTES), b"\xff" * ID_BYTES
END = LAST + b"\x00"
U64 = (1 << 64) - 1


def packed(*numbers: int) -> bytes:
    """IDs ``number // 50 - number % 50``, as they are packed."""
    return b"".join(struct.pack(">QQ", *divmod(number, 50)) for number in numbers)


ascending = st.lists(st.integers(0, 400), max_size=160, unique=True).map(sorted)
uppers = st.one_of(st.integers(0, 420).map(packed), st.sampled_from([b"", LAST, END]))
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "extend", "remove", "split", "look"]),
        ascending, uppers, st.integers(0, 3), st.integers(0, 9),
    ),
    max_size=8,
)  # fmt: skip


def play(run: Any, script: list[Any]) -> list[Any]:
    """All that a run answers to a script."""
    told: list[Any] = []
    for what, numbers, upper, consumer, time_ms in script:
        ids = packed(*numbers)
        changes: dict[int, int] = {2: 1}
        if what == "put":
            items = [(*divmod(number, 50), time_ms, number) for number in numbers]
            told.append(run.put(items, 0, consumer, upper, changes))
        elif what == "extend":
            last = run.last
            run.extend(b"".join(packed(n) for n in numbers if packed(n) > last), consumer, 7, 1)
        elif what == "remove":
            told.append(run.remove(ids, 0, upper, changes))
        elif what == "split":
            told.append((run.split().pack(), run.stored))
        else:
            told += [run.find(packed(number)) for number in numbers]
            told.append(run.present(ids, 0, upper))
            if len(numbers) > 1:
                told.append(run.present(ids, ID_BYTES, upper))
                told.append(run.between(packed(numbers[0]), packed(numbers[-1])))
                told.append(run.between(packed(numbers[0]), LAST, consumer))
        told.append({key: by for key, by in changes.items() if by})
        told.append((len(run), run.first, run.last, run.pack(), run.due(time_ms)))
        told.append(run.oldest_ms if len(run) else None)
    return told


@settings(max_examples=500, deadline=None)
@given(steps)
@example([("put", [0, 1], END, 0, 0), ("look", [0, 1], packed(1), 0, 0)])
@example([("put", [0, 1], END, 0, 0), ("remove", [0, 1], packed(1), 0, 0)])
def test_the_compiled_run_is_the_pure_one(native: Codec, script: list[Any]) -> None:
    """Prevents: a compiled class that finds, moves or stores entries otherwise."""
    told = play(pure.PendingRun(), script)
    assert play(native.PendingRun(), script) == told
    if told:
        value = told[-2][3]
        again = native.PendingRun.unpack(value)
        assert (again.pack(), again.stored) == (value, None)
        assert play(again, script[:2]) == play(pure.PendingRun.unpack(value), script[:2])


def test_a_run_takes_what_it_has_room_for(codec: Codec) -> None:
    """Prevents: a run of more entries than it may hold; an entry that is there refused for it."""
    run = codec.PendingRun()
    items = [(0, number, 5, 1) for number in range(200)]
    assert run.put(items, 0, 1, END, {}) == RUN_MAX_ENTRIES == len(run)
    changes: dict[int, int] = {}
    assert run.put(items, 100, 2, END, changes) == RUN_MAX_ENTRIES
    assert changes == {1: -28, 2: 28}


def test_the_largest_numbers_are_kept(codec: Codec) -> None:
    """Prevents: a time or a count cut to fewer bits; numbers that do not fit stored as others."""
    run = codec.PendingRun()
    run.put([(U64, U64 - 1, U64, U64)], 0, (1 << 32) - 1, END, {})
    expected = (U64, U64 - 1, (1 << 32) - 1, U64, U64)
    assert codec.PendingRun.unpack(run.pack()).between(FIRST, LAST) == [expected]
    assert run.find(struct.pack(">QQ", U64, U64 - 1)) == expected[2:]
    for wrong in ((0, 0, -1, 0), (0, 0, 0, U64 + 1)):
        with pytest.raises(OverflowError):
            codec.PendingRun().put([wrong], 0, 1, END, {})


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\0\0\0", b"\xff\xff\xff\xff", b"\0" * 5])
def test_a_value_that_does_not_fit_is_refused(codec: Codec, value: bytes) -> None:
    """Prevents: memory read behind a value that was cut off."""
    with pytest.raises(ValueError, match="does not fit"):
        codec.PendingRun.unpack(value)


def test_a_run_without_entries(codec: Codec) -> None:
    """Prevents: a run just emptied that tells of what was in it."""
    run = codec.PendingRun()
    run.extend(packed(3), 1, 5, 1)
    run.remove(packed(3), 0, END, {})
    assert (len(run), run.first, run.last, run.due(9)) == (0, b"", b"", [])
    with pytest.raises(ValueError, match=r"."):
        _ = run.oldest_ms
