"""Prevents a repeated add from doubling its entry, and one of a lost entry from being swallowed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import logstore.aio
from logstore import StreamID
from logstore.api.store import Store
from logstore.codec.fingerprint import fingerprint
from logstore.engine.features.background_sweep import IdempotentExpiry
from logstore.engine.maintenance import checkpoint as checkpoints
from logstore.engine.snapshots import snapshot
from logstore.errors import (
    DiskFullError,
    EntryTypeError,
    IDOrderError,
    InvalidEntryError,
    OptionError,
    StreamNotFoundError,
    TooLargeError,
    UsageError,
)
from logstore.features.idempotent_ids import ProducerRows
from tests.store.conftest import OpenStore
from tests.support.failing_files import FailingFileSystem
from tests.support.inside import FixedClock, engine_of
from tests.support.watched_files import in_place


def rows_kept(store: Store[Any]) -> int:
    """Rows of the index for idempotent adds."""
    return engine_of(store).index().entries()["producers"]


def test_the_same_add_twice_is_one_entry(store: Store[bytes]) -> None:
    stream = store["s"]
    first = stream.add({"n": 1}, producer="p", idempotent_id="order-17")
    assert stream.add({"n": 2}, producer="p", idempotent_id=b"order-17") == first
    assert [entry.fields["n"] for entry in stream] == [b"1"]
    assert stream.add({"n": 3}, producer="p", idempotent_id="order-18") != first
    assert stream.add({"n": 3}, producer="other", idempotent_id="order-17") != first
    assert store["t"].add({"n": 3}, producer="p", idempotent_id="order-17") is not None
    assert len(stream) == 3


def test_a_producer_alone_means_the_fields_themselves(store: Store[bytes]) -> None:
    stream = store["s"]
    first = stream.add({"a": 1, "b": 2.5}, producer="p")
    assert stream.add([("b", "2.5"), ("a", b"1")], producer="p") == first
    assert stream.add({"a": 1, "b": 2}, producer="p") != first
    computed = fingerprint([b"a", b"1", b"b", b"2.5"])
    assert stream.add({"else": 1}, producer="p", idempotent_id=computed) == first


def test_an_entry_that_was_deleted_or_trimmed_is_added_anew(store: Store[bytes]) -> None:
    stream = store["s"]
    first = stream.add({"n": 1}, producer="p", idempotent_id="x")
    assert first is not None
    stream.delete(first)
    second = stream.add({"n": 1}, producer="p", idempotent_id="x")
    assert second is not None
    assert second > first
    stream.trim(max_entries=0, approximate=False)
    third = stream.add({"n": 1}, producer="p", idempotent_id="x")
    assert [entry.id for entry in stream] == [third]
    info = stream.info()
    assert (info.iids_added, info.iids_duplicates, info.iids_tracked) == (3, 0, 1)


def test_an_idempotent_id_expires_to_the_millisecond(
    store: Store[bytes], clock: FixedClock
) -> None:
    stream = store["s"]
    first = stream.add({"n": 1}, producer="p", idempotent_id="x")
    clock.ms += 99_999
    assert stream.add({"n": 1}, producer="p", idempotent_id="x") == first
    clock.ms += 1
    assert stream.add({"n": 1}, producer="p", idempotent_id="x") != first


def test_idempotent_max_ids_keeps_the_newest_of_a_producer(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.configure(idempotent_max_ids=2)
    a, b, _ = (stream.add({"n": 1}, producer="p", idempotent_id=each) for each in "abc")
    stream.add({"n": 1}, producer="q", idempotent_id="a")
    assert stream.add({"n": 1}, producer="p", idempotent_id="b") == b
    assert stream.add({"n": 1}, producer="p", idempotent_id="a") != a
    assert stream.info().iids_tracked == 3


def remembered(store: Store[bytes]) -> dict[bytes, StreamID]:
    """All idempotent IDs that are remembered, and the entries that they gave."""
    return snapshot.read(
        engine_of(store),
        lambda view: {row.name: row.id for _, row in ProducerRows(view.index).all()},
    )


def batch(store: Store[bytes], names: str) -> list[StreamID]:
    """Add rows of these names in one commit."""
    return list(store["s"].add_many([(name, {"n": name}) for name in names], producer="p"))


@pytest.mark.parametrize(
    ("before", "deleted", "rows", "new", "left"),
    [
        ("ab", "", "cda", "cda", b"ad"),  # what the batch itself evicts is new again
        ("ab", "", "cab", "cab", b"ab"),
        ("ab", "", "acb", "c", b"bc"),
        ("a", "a", "abc", "abc", b"bc"),  # the row of a lost entry goes with its name
        ("ab", "a", "ac", "ac", b"ac"),  # and is not counted twice
        ("ab", "ab", "b", "b", b"ab"),
        ("", "", "abcab", "abcab", b"ab"),
        ("", "", "abab", "ab", b"ab"),
    ],
)
def test_a_batch_evicts_as_one_add_after_another_would(
    store: Store[bytes], before: str, deleted: str, rows: str, new: str, left: bytes
) -> None:
    store["s"].configure(idempotent_max_ids=2)
    for name, id in zip(before, batch(store, before) if before else [], strict=True):
        if name in deleted:
            store["s"].delete(id)
    last = store["s"].last_id
    given = batch(store, rows)
    assert len({id for id in given if id > last}) == len(new)
    assert sorted(remembered(store)) == [bytes([each]) for each in left]
    assert store["s"].info().iids_tracked == len(left)


def test_an_id_that_is_given_again_is_another_entry(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.add({"n": 0}, producer="p", idempotent_id="stays")
    first = stream.add({"n": 1}, producer="p", idempotent_id="x")
    stream.trim(max_entries=1, approximate=False)
    stream.trim(max_entries=0, approximate=False)
    stream.set_id("1-1")
    assert remembered(store) == {}
    stream.add({"n": 2})
    assert stream.add({"n": 3}) == first
    assert stream.add({"n": 1}, producer="p", idempotent_id="x") != first
    assert [entry.fields["n"] for entry in stream] == [b"2", b"3", b"1"]


def test_changed_idempotent_settings_forget_all_ids(store: Store[bytes]) -> None:
    stream = store["s"]
    first = stream.add({"n": 1}, producer="p", idempotent_id="x")
    stream.configure(idempotent_duration=100, idempotent_max_ids=100, max_entries=10)
    assert stream.add({"n": 1}, producer="p", idempotent_id="x") == first
    stream.configure(idempotent_duration=101)
    info = stream.info()
    assert (info.pids_tracked, info.iids_tracked) == (0, 0)
    assert (info.iids_added, info.iids_duplicates) == (1, 1)  # of the stream's whole life
    assert stream.add({"n": 1}, producer="p", idempotent_id="x") != first


def test_info_has_the_fields_of_xinfo(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.configure(idempotent_duration=7, idempotent_max_ids=9)
    stream.add_many([{"n": 1}, {"n": 2}, {"n": 1}], producer="p")
    stream.add({"n": 1}, producer="q")
    told = stream.info().as_dict()
    assert list(told)[8:14] == [
        "idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added",
        "iids-duplicates",
    ]  # fmt: skip
    assert list(told.values())[8:14] == [7, 9, 2, 3, 3, 1]
    assert store.metrics()["duplicate_adds"] == 1


def test_many_rows_with_ids_given_or_computed(store: Store[bytes]) -> None:
    stream = store["s"]
    given = stream.add_many([("a", {"n": 1}), (b"b", {"n": 2})], producer="p")
    again = stream.add_many(
        [("b", {"n": 2}), ("c", {"n": 3}), ("a", {"n": 1}), ("c", {"n": 3})], producer="p", batch=3
    )
    assert list(again) == [given[1], again[1], given[0], again[1]]
    assert [entry.fields["n"] for entry in stream] == [b"1", b"2", b"3"]
    computed = stream.add_many(({"n": each} for each in "45456"), producer="p", batch=2)
    assert len(stream) == 6
    assert computed[0] == computed[2]
    pairs = (("x", "1"), ("y", "2"))  # a row of two pairs, neither an ID and fields
    assert list(stream.add_many([pairs, pairs], producer="p")) == [stream.last_id] * 2


def test_rows_around_known_ones_get_the_ids_of_one_add_after_another(
    open_store: OpenStore, tmp_path: Path
) -> None:
    rows = [(name, {"n": name}) for name in "abcdefghij"]
    stores = [open_store(tmp_path / each, node_max_entries=3) for each in ("one", "many")]
    for store in stores:
        store["s"].add_many([rows[2], rows[5]], producer="p")
    one = [stores[0]["s"].add(row, producer="p", idempotent_id=name) for name, row in rows]
    many = stores[1]["s"].add_many(rows, producer="p", max_entries=100)
    assert list(many) == one
    assert list(stores[0]["s"]) == list(stores[1]["s"])


def test_a_duplicate_trims_nothing(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.add_many([("a", {"n": 1}), ("b", {"n": 2})], producer="p")
    stream.add({"n": 1}, producer="p", idempotent_id="a", max_entries=1, approximate=False)
    assert len(stream) == 2
    stream.add({"n": 1}, producer="p", idempotent_id="c", max_entries=1, approximate=False)
    assert len(stream) == 1


def test_create_false_makes_no_stream(store: Store[bytes]) -> None:
    assert store["s"].add({"n": 1}, producer="p", create=False) is None
    assert list(store["s"].add_many([{"n": 1}], producer="p", create=False)) == []
    assert store.streams() == []
    with pytest.raises(StreamNotFoundError):
        store["s"].configure(idempotent_max_ids=1, create=False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"idempotent_id": "x"}, OptionError, "give producer="),
        ({"producer": ""}, OptionError, "requires a non-empty producer ID"),
        ({"producer": "p", "idempotent_id": b""}, OptionError, "a non-empty idempotent ID"),
        ({"producer": "p", "id": "5-1"}, OptionError, "only with auto-generated IDs"),
        ({"producer": "p", "id": "5-*"}, OptionError, "only with auto-generated IDs"),
        ({"producer": "p", "id": "no ID"}, UsageError, "Invalid stream ID"),
        ({"producer": 5}, EntryTypeError, "producer ID is str or bytes, not int"),
        ({"producer": "p", "idempotent_id": 5}, EntryTypeError, "str or bytes, not int"),
        ({"producer": "p" * 1025}, TooLargeError, "at most 1024 bytes"),
        ({"producer": "p", "idempotent_id": "x" * 1025}, TooLargeError, "give its hash"),
    ],
)
def test_invalid_idempotent_arguments_change_nothing(
    store: Store[bytes], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        store["s"].add({"n": 1}, **arguments)
    with pytest.raises(error, match=message), store.transaction() as tx:
        tx.stream("s").add({"n": 1}, **arguments)
    assert store.streams() == []


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([("a", {"n": 1}), {"n": 2}], InvalidEntryError),
        ([{"n": 1}, ("a", {"n": 2})], UsageError),
        ([("", {"n": 1})], OptionError),
        ([(5, {"n": 1})], EntryTypeError),
        ([(StreamID(5, 1), {"n": 1})], UsageError),
        ([{}], InvalidEntryError),
    ],
)
def test_rows_that_cannot_be_right_are_refused(
    store: Store[bytes], rows: list[Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        store["s"].add_many(rows, producer="p")
    assert store.streams() == []


def test_a_batch_for_which_there_are_no_ids_changes_nothing(store: Store[bytes]) -> None:
    stream = store["s"]
    known = stream.add({"n": 1}, producer="p", idempotent_id="known")
    stream.set_id((2**64 - 1, 2**64 - 3))
    rows = [(name, {"n": 1}) for name in ("a", "known", "b", "c")]
    with pytest.raises(IDOrderError, match="exhausted"):
        stream.add_many(rows, producer="p")
    assert [entry.id for entry in stream] == [known]
    assert len(stream.add_many(rows[:3], producer="p")) == 3
    with pytest.raises(IDOrderError, match="exhausted"):
        stream.add({"n": 1}, producer="p", idempotent_id="d")
    assert stream.add({"n": 1}, producer="p", idempotent_id="b") == (2**64 - 1, 2**64 - 1)


def test_names_of_the_longest_kind_and_of_any_bytes(open_store: OpenStore) -> None:
    store = open_store()
    stream = store["s"]
    longest = bytes(range(256)) * 4
    first = stream.add({"n": 1}, producer=longest, idempotent_id=longest)
    store.close()
    shutil.rmtree(Path(store.path) / "index")
    stream = open_store()["s"]
    assert stream.add({"n": 1}, producer=longest, idempotent_id=longest) == first


def test_text_is_taken_in_the_encoding_of_the_store(open_store: OpenStore) -> None:
    stream = open_store(encoding="latin-1")["s"]
    first = stream.add({"n": 1}, producer="é", idempotent_id="ü")
    assert stream.add({"n": 1}, producer=b"\xe9", idempotent_id=b"\xfc") == first


def test_transactions_know_what_they_add_themselves(store: Store[bytes]) -> None:
    with store.transaction() as tx:
        stream = tx.stream("s")
        one = stream.add({"n": 1}, producer="p", idempotent_id="x")
        two = stream.add({"n": 1}, producer="p", idempotent_id="x")
        gone = stream.add_many([("x", {"n": 1}), ("y", {"n": 1})], producer="p")
        none = tx.stream("t").add({"n": 1}, producer="p", create=False)
    assert one.id == two.id == gone.result[0]
    assert none.result is None
    assert len(store["s"]) == 2
    given_up = store.transaction()
    given_up.stream("s").add({"n": 1}, producer="p", idempotent_id="z")
    given_up.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert store["s"].info().iids_added == 2


def test_asyncio_adds_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with logstore.aio.open(tmp_path / "store", sync="os") as store:
            stream = store.stream("s")
            adds = [stream.add({"n": 1}, producer="p", idempotent_id="x") for _ in range(8)]
            assert len(set(await asyncio.gather(*adds))) == 1
            await stream.add_many([("x", {"n": 1}), ("y", {"n": 2})], producer="p")
            async with store.transaction() as tx:
                found = tx.stream("s").add({"n": 2}, producer="p", idempotent_id="y")
            assert [entry.id async for entry in stream.range()][1] == found.id

    asyncio.run(main())


def test_idempotent_ids_and_counts_survive_a_lost_index(open_store: OpenStore) -> None:
    store = open_store()
    given = store["s"].add_many([("a", {"n": 1}), ("b", {"n": 2})], producer="p")
    store["s"].add({"n": 1}, producer="p", idempotent_id="a")
    info = store["s"].info()
    for checkpoint in (False, True):
        if checkpoint:
            store.checkpoint()
        store.close()
        shutil.rmtree(Path(store.path) / "index")
        store = open_store()
        assert store["s"].info() == info
    assert store["s"].add({"n": 1}, producer="p", idempotent_id="b") == given[1]


def test_a_duplicate_is_as_durable_as_the_add_would_be(open_store: OpenStore) -> None:
    store = open_store(sync="os")
    store["s"].add({"n": 1}, producer="p")
    wake = engine_of(store).wake
    assert wake.durable_upto < wake.log().applied
    store["s"].add({"n": 1}, producer="p", sync="always")
    assert wake.durable_upto == wake.log().applied


def test_plain_adds_leave_no_trace(store: Store[bytes]) -> None:
    store["s"].add({"n": 1})
    store["s"].add_many([{"n": 1}, {"n": 2}])
    assert rows_kept(store) == 0


def test_a_dropped_stream_gives_everything_back(store: Store[bytes]) -> None:
    first = store["s"].add({"n": 1}, producer="p", idempotent_id="x")
    store["t"].add({"n": 1}, producer="p", idempotent_id="x")
    assert rows_kept(store) == 10
    store.drop("s")
    assert rows_kept(store) == 5
    assert store["s"].add({"n": 1}, producer="p", idempotent_id="x") == first
    assert len(store["s"]) == 1


def test_expired_idempotent_ids_are_removed_in_parts(
    store: Store[bytes], clock: FixedClock
) -> None:
    names = [(str(each), {"n": each}) for each in range(1200)]
    store["s"].configure(idempotent_max_ids=10_000)
    store["s"].add_many(names[:600], producer="gone")
    store["s"].add_many(names, producer="gone too")
    clock.ms += 100_000
    left = []
    for each in range(5):
        store["s"].add({"n": each}, producer="here", idempotent_id=str(each))
        left.append(store["s"].info().iids_tracked - each - 1)
    assert left == [1300, 800, 300, 0, 0]
    assert store["s"].info().pids_tracked == 1


def test_expired_idempotent_ids_are_removed_in_the_background(
    store: Store[bytes], clock: FixedClock
) -> None:
    shared = store._live()
    expiry = IdempotentExpiry(shared.engine, shared.committer)
    for name in "abc":
        store[name].add_many([(str(each), {"n": 1}) for each in range(100)], producer="gone")
    store["d"].add({"n": 1})
    assert not expiry.run()
    clock.ms += 99_999
    store["b"].add({"n": 1}, producer="here")
    clock.ms += 1
    assert expiry.run()
    assert not expiry.run()
    assert [store[name].info().iids_tracked for name in "abcd"] == [0, 1, 0, 0]
    assert store["a"].info().iids_added == 100


def test_expired_idempotent_ids_are_removed_on_a_full_disk(
    tmp_path: Path, clock: FixedClock
) -> None:
    """In the space set aside; and what fails all the same is not tried again at once."""
    full = FailingFileSystem(only=("write",))
    with in_place(full), logstore.open(tmp_path / "s", background=False, clock=clock) as store:
        shared = store._live()
        store["a"].add({"n": 1}, producer="gone", idempotent_id="x")
        clock.ms += 100_000
        full.operations, full.at = 0, 1
        expiry = IdempotentExpiry(shared.engine, shared.committer)
        expiry.tick()
        assert full.failed == ["write 00000000000000000001.log"]
        assert store["a"].info().iids_tracked == 0

        store["b"].add({"n": 1}, producer="gone", idempotent_id="x")
        clock.ms += 100_000
        full.operations, full.forever = 0, True
        expiry = IdempotentExpiry(shared.engine, shared.committer)
        with pytest.raises(DiskFullError):
            expiry.tick()
        before = len(full.failed)
        expiry.tick()
        assert len(full.failed) == before
        full.at = 0


def test_a_checkpoint_may_be_taken_while_others_add(
    open_store: OpenStore, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is of many moments: between two looks of it something of each kind happens."""
    store = open_store()
    for name in "abcdef":
        store[name].add_many([(str(each), {"n": 1}) for each in range(20)], producer=name)
        store[name].add_many([(str(each), {"n": 1}) for each in range(7)], producer="both")
    monkeypatch.setattr("logstore.features.feature.ROWS_A_CHUNK", 4)
    read = snapshot.read
    steps = 0

    def looked(*arguments: Any) -> Any:
        nonlocal steps
        found = read(*arguments)
        steps, step = steps + 1, steps
        name = "abcdef"[step * 5 % 6]
        store[name].add({"n": 1}, producer=name, idempotent_id=str(step * 7 % 30))
        clock.ms += 4000
        if step % 9 == 4:
            store[name].configure(idempotent_max_ids=5 + step % 3)
        if step % 11 == 5:
            store.drop(name)
        if step % 5 == 2:
            store[name].add_many([(str(each), {"n": 2}) for each in range(9)], producer="both")
        return found

    monkeypatch.setattr(checkpoints.snapshot, "read", looked)
    store.checkpoint()
    monkeypatch.undo()
    assert steps > 30
    known = {name: store[name].info() for name in store.streams()}
    store.close()
    shutil.rmtree(Path(store.path) / "index")
    store = open_store()
    assert store._live().report.checkpoint_position
    assert {name: store[name].info() for name in store.streams()} == known
    assert rows_kept(store) == sum(
        1 + info.pids_tracked + 3 * info.iids_tracked for info in known.values() if info.iids_added
    )
