"""Prevents an add that gives a wrong ID, ignores an option, or leaves something when it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from logstore import IDOrderError, InvalidIDError, StreamID
from logstore.api.store import Store
from logstore.ids import MAX_ID, U64_MAX
from tests.store.look import everything
from tests.support.inside import FixedClock


def test_automatic_ids_follow_the_clock_and_never_go_back(
    store: Store[bytes], clock: FixedClock
) -> None:
    stream = store.stream("s")
    now = clock.ms
    assert stream.add({"a": 1}) == (now, 0)
    assert stream.add({"a": 1}) == (now, 1)
    clock.ms = now - 5000
    assert stream.add({"a": 1}) == (now, 2)
    clock.ms = now + 1
    assert stream.add({"a": 1}, id=b"*") == (now + 1, 0)
    assert isinstance(stream.last_id, StreamID)


def test_an_automatic_sequence_within_given_milliseconds(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id="0-*") == (0, 1)
    assert stream.add({"a": 1}, id="5-*") == (5, 0)
    assert stream.add({"a": 1}, id=b"5-*") == (5, 1)
    with pytest.raises(IDOrderError, match="equal or smaller"):
        stream.add({"a": 1}, id="4-*")
    stream.add({"a": 1}, id=(5, U64_MAX))
    with pytest.raises(IDOrderError, match="equal or smaller"):  # it never carries
        stream.add({"a": 1}, id="5-*")


def test_an_automatic_id_carries_into_the_milliseconds(store: Store[bytes]) -> None:
    stream = store.stream("s")
    future = 1 << 60
    stream.add({"a": 1}, id=(future, U64_MAX))
    assert stream.add({"a": 1}) == (future + 1, 0)


def test_the_last_possible_id_ends_the_stream(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id=MAX_ID) == MAX_ID
    for form in ("*", f"{U64_MAX}-*", "5", MAX_ID):
        with pytest.raises(IDOrderError, match="exhausted"):
            stream.add({"a": 1}, id=form)
    assert [entry.id for entry in stream] == [MAX_ID]
    assert [entry.id for entry in stream.range(reverse=True)] == [MAX_ID]
    assert stream.read("0") == list(stream)
    assert stream.read(MAX_ID) == []


def test_every_form_of_an_explicit_id(store: Store[bytes]) -> None:
    stream = store.stream("s")
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    given = [stream.add({"a": 1}, id=id) for id in ("1", "1-1", b"2-1", (3, 0), moment)]
    assert [str(id) for id in given] == ["1-0", "1-1", "2-1", "3-0", "1714521600000-0"]


def test_a_deleted_id_is_not_given_again(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"a": 1}, id="5-5")
    stream.delete("5-5")
    for form in ("5-5", "5-4", "4-*"):
        with pytest.raises(IDOrderError):
            stream.add({"a": 1}, id=form)
    assert stream.add({"a": 1}, id="5-*") == (5, 6)


def test_zero_is_refused_and_creates_nothing(store: Store[bytes]) -> None:
    for form in ("0-0", "0", (0, 0)):
        with pytest.raises(InvalidIDError, match="must be greater than 0-0"):
            store.stream("s").add({"a": 1}, id=form)
    with pytest.raises(InvalidIDError, match="must be greater than 0-0"):
        store.stream("s").add_many([("0-0", {"a": 1})])
    assert store.streams() == []


def test_without_create_a_missing_stream_stays_missing(store: Store[bytes]) -> None:
    assert store.stream("s").add({"a": 1}, create=False) is None
    assert len(store.stream("s").add_many([{"a": 1}], create=False)) == 0
    assert store.streams() == []
    store.create("s")
    assert store.stream("s").add({"a": 1}, id="1-0", create=False) == (1, 0)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"maxlen": 3, "approximate": False}, [8, 9, 10]),
        ({"maxlen": 3}, [6, 7, 8, 9, 10]),
        ({"maxlen": 0, "approximate": False}, []),
        ({"minid": "9", "approximate": False}, [9, 10]),
        ({"minid": (9, 0)}, [6, 7, 8, 9, 10]),
        ({"maxlen": 0, "approximate": True, "limit": 4}, [*range(1, 11)]),
    ],
)
def test_an_add_trims_behind_itself(
    store: Store[bytes], options: dict[str, Any], left: list[int]
) -> None:
    stream = store.stream("s")
    for ms in range(1, 10):
        stream.add({"n": ms}, id=(ms, 0))
    assert stream.add({"n": 10}, id="10-0", **options) == (10, 0)
    assert [entry.id.ms for entry in stream] == left
    assert stream.last_id == (10, 0)
    everything(store)


def test_maxlen_zero_leaves_an_empty_stream(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id="1-1", maxlen=0, approximate=False) == (1, 1)
    assert (len(stream), "s" in store, stream.last_id, stream.first) == (0, True, (1, 1), None)
