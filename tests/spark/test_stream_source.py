"""Prevents a streaming query that loses a row, gives one twice, or passes over what was trimmed.

Each query runs until there is nothing new, and is started again on its checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import OptionError, SnapshotExpiredError, StreamNotFoundError
from logstore.redis import Redis
from tests.scan.scanned_stores import make_store
from tests.spark.streamed import batch, reader_of, rows
from tests.spark.tables import source_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with make_store(tmp_path / "store") as store:
        store["race:1"].add_many(({"n": n} for n in range(30)), batch=7)
        store["race:2"].add_many(({"n": n} for n in range(100, 110)), batch=7)
        store["other"].add({"n": "-1"})
    return tmp_path / "store"


def pins(path: Path) -> int:
    return len(list((path / "pins").iterdir()))


def test_a_query_restarted_gives_each_row_once(spark: Any, path: Path, tmp_path: Path) -> None:
    """Batches of a few rows; a stream that appears between two runs; then through the sink."""

    def run() -> list[tuple[str, int]]:
        frame = spark.readStream.format("logstore").schema("stream string, n int")
        frame = frame.options(path=str(path), streams="race:*", maxRowsPerTrigger=9).load()
        writer = frame.writeStream.format("logstore").trigger(availableNow=True)
        writer = writer.options(path=str(path), stream="copied", producer="copy", idColumn="*")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            assert query.awaitTermination(120)
            told = [each for each in query.recentProgress if each.numInputRows]
            assert len(told) > 1
            with make_store(path) as store:
                races = [name for name in store.streams() if name.startswith(b"race")]
                ends = {name.decode(): str(store[name].last.id) for name in races}
            reported = json.loads(told[-1].sources[0].latestOffset)["streams"]
            assert {name: each[0] for name, each in reported.items()} == ends
        finally:
            query.stop()
        with make_store(path) as store:
            return sorted(
                (each.fields["n"].decode(), each.id.ms > 0) for each in store["copied"].range()
            )

    first = run()
    assert sorted(int(n) for n, _ in first) == [*range(30), *range(100, 110)]
    with make_store(path) as store:
        store["race:1"].add({"n": "30"})
        store["race:3"].add_many({"n": n} for n in range(200, 220))
    again = run()
    assert sorted(int(n) for n, _ in again) == [*range(31), *range(100, 110), *range(200, 220)]


def test_batches_end_where_limits_say(path: Path) -> None:
    """Nothing twice, nothing left out; a batch that is repeated is the same; pins go with it."""
    reader = reader_of(path, maxRowsPerTrigger=9)
    start = reader.initialOffset()
    assert start == reader.initialOffset()
    found: list[int] = []
    while True:
        some, end = batch(reader, start)
        if end == start:
            break
        assert 0 < len(some) <= 9
        assert rows(reader, start, end) == some
        with make_store(path) as store:
            store["race:1"].add({"n": 1000 + len(found)}) if len(found) < 20 else None
        assert rows(reader, start, end) == some
        found += some
        assert pins(path) > 0
        reader.commit(end)
        assert pins(path) == 0
        start = end
    with make_store(path) as store:
        wanted = [int(each.fields["n"]) for n in (1, 2) for each in store[f"race:{n}"].range()]
    assert sorted(found) == sorted(wanted)
    by_bytes = reader_of(path, maxBytesPerTrigger=100)
    some, _ = batch(by_bytes, by_bytes.initialOffset())
    assert 0 < len(some) < 20


def test_available_now_ends_at_what_there_was(path: Path) -> None:
    reader = reader_of(path)
    reader.prepareForTriggerAvailableNow()
    with make_store(path) as store:
        store["race:1"].add({"n": "30"})
        store["race:3"].add({"n": "31"})
    some, end = batch(reader, reader.initialOffset())
    assert some == [*range(30), *range(100, 110)]
    assert batch(reader, end) == ([], end)
    assert batch(reader_of(path), end)[0] == [30, 31]
    reader.stop()


def test_latest_keeps_where_its_first_batch_began(path: Path) -> None:
    """Spark asks for the beginning anew when the first batch is repeated."""
    reader = reader_of(path, startingOffsets="latest")
    start = reader.initialOffset()
    with make_store(path) as store:
        store["race:1"].add({"n": "30"})
    some, end = batch(reader, start)
    assert some == [30]
    other = reader_of(path, startingOffsets="latest")
    assert rows(other, other.initialOffset(), end) == [30]
    for each in (reader, other):
        each.stop()
    assert pins(path) == 0


def test_entries_trimmed_unread_are_reported(path: Path) -> None:
    """And what was read before it was trimmed, or deleted, is no loss."""
    reader = reader_of(path)
    _, end = batch(reader, reader.initialOffset())
    with make_store(path) as store:
        store["race:1"].delete(store["race:1"].first.id)
        store["race:1"].trim(max_entries=0, approximate=False)
        ids = [store["race:1"].add({"n": n}) for n in range(40, 50)]
    some, end = batch(reader, end)
    assert some == list(range(40, 50))
    with make_store(path) as store:
        store["race:1"].add_many({"n": n} for n in range(50, 60))
        store["race:1"].trim(max_entries=4, approximate=False)
    with pytest.raises(SnapshotExpiredError, match="6 entries of stream 'race:1' behind"):
        batch(reader, end)
    assert batch(reader_of(path, failOnDataLoss="false"), end)[0] == [56, 57, 58, 59]
    with make_store(path) as store:
        store.drop("race:1")
        store["race:1"].add({"n": "1"}, id=ids[0])
    with pytest.raises(SnapshotExpiredError, match="dropped, and made anew"):
        batch(reader, end)


def test_entries_lost_between_offset_and_plan_are_reported(path: Path) -> None:
    """As in a batch that is repeated a week later, by a query that is started again."""
    reader, lossy = reader_of(path), reader_of(path, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with make_store(path) as store:
        store["race:1"].trim(max_entries=12, approximate=False)
        store["race:2"].delete(store["race:2"].first.id)
    with pytest.raises(SnapshotExpiredError, match="18 entries of stream 'race:1' behind"):
        reader.partitions(start, end)
    assert rows(lossy, start, end) == [*range(18, 30), *range(101, 110)]
    lossy.stop()
    with make_store(path) as store:
        store.drop("race:1")
    with pytest.raises(SnapshotExpiredError, match="'race:1' was dropped before it was read"):
        reader.partitions(start, end)
    with make_store(path) as store:
        store["race:1"].add_many({"n": n} for n in range(1000, 1040))
    with pytest.raises(SnapshotExpiredError, match="'race:1' was dropped before it was read"):
        reader.partitions(start, end)
    assert rows(lossy, start, end) == [*range(101, 110)]
    lossy.stop()
    assert pins(path) == 0


def test_losses_behind_a_batch_that_was_cut_are_told(path: Path) -> None:
    """What was read may go; of the rest each entry counts, also of a stream that came later."""
    reader = reader_of(path, maxRowsPerTrigger=9)
    _, end = batch(reader, reader.initialOffset())
    with make_store(path) as store:
        read_upto = end["streams"]["race:1"][0]
        assert store["race:1"].trim(min_id=read_upto, approximate=False) > 0
        store["race:3"].add_many(({"n": n} for n in range(200, 240)), batch=7)
    _, end = batch(reader, end)
    with make_store(path) as store:
        store["race:3"].delete(store["race:3"].last.id)
    with pytest.raises(SnapshotExpiredError, match="1 entries of stream 'race:3' behind"):
        batch(reader, end)
    lossy = reader_of(path, maxRowsPerTrigger=9, failOnDataLoss="false")
    for _ in range(3):
        some, end = batch(lossy, end)
        assert some
    some, _ = batch(reader, end)  # what went then is not told again
    assert some
    for each in (reader, lossy):
        each.stop()


def test_the_progress_is_a_group(path: Path) -> None:
    """Behind what was done, and never before it; a group that somebody reads by is not touched."""
    reader = reader_of(path, progressGroup="query", maxRowsPerTrigger=12)

    def lags() -> dict[bytes, int | None]:
        with make_store(path) as store:
            names = (name for name in store.streams() if name.startswith(b"race"))
            return {name: each.lag for name in names for each in store[name].groups()}

    start = reader.initialOffset()
    some, end = batch(reader, start)
    assert (len(some), lags()) == (12, {})
    reader.commit(end)
    assert sum(lag or 0 for lag in lags().values()) == 28
    with Redis(path) as client:  # as whoever watches groups asks
        told = [client.xinfo_groups(f"race:{n}")[0] for n in (1, 2)]
    assert sum(each["lag"] for each in told) == 28
    assert {each["name"] for each in told} == {b"query"}
    some, after = batch(reader, end)
    assert sum(lag or 0 for lag in lags().values()) == 28
    while after != end:
        end = after
        some, after = batch(reader, end)
    assert lags() == {b"race:1": 0, b"race:2": 0}
    reader.stop()
    with make_store(path) as store:
        store["race:1"].group("query").read("somebody", count=1)
        store["race:1"].group("query").add_consumer("somebody")
        store["race:1"].add({"n": "1"})
    _, after = batch(reader, end)
    with pytest.raises(OptionError, match="has consumers"):
        reader.commit(after)
    reader.stop()


def test_a_stream_of_the_same_name_is_another_one(path: Path) -> None:
    """One that was dropped is told, and read from its beginning where that is allowed."""
    reader, lossy = reader_of(path), reader_of(path, failOnDataLoss="false")
    _, end = batch(reader, reader.initialOffset())
    with make_store(path) as store:
        store.drop("race:1")
    with pytest.raises(SnapshotExpiredError, match="'race:1' was dropped, and what"):
        batch(reader, end)
    with make_store(path) as store:  # below and above what was read, and more than there was
        store["race:1"].add({"n": 500}, id="1-0")
        store["race:1"].add_many({"n": n} for n in range(501, 540))
    with pytest.raises(SnapshotExpiredError, match="dropped, and made anew"):
        batch(reader, end)
    assert batch(lossy, end)[0] == [*range(500, 540)]
    lossy.stop()


def test_a_stream_that_is_named_may_be_dropped(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told as one that a pattern found; a new query wants all that it names."""
    names = "race:1,race:2"
    reader = reader_of(path, streams=names)
    lossy = reader_of(path, streams=names, failOnDataLoss="false")
    _, end = batch(reader, reader.initialOffset())
    with make_store(path) as store:
        store.drop("race:1")
        store["race:2"].add({"n": "110"})
    with pytest.raises(SnapshotExpiredError, match="'race:1' was dropped, and what"):
        batch(reader, end)
    lossy.prepareForTriggerAvailableNow()
    some, end = batch(lossy, end)
    assert some == [110]
    for each in (lossy, reader_of(path, streams=names, failOnDataLoss="false")):
        assert batch(each, end) == ([], end)
    (line,) = caplog.messages
    assert "stream 'race:1' was dropped, and what" in line
    with pytest.raises(StreamNotFoundError, match="race:1"):
        batch(lossy, lossy.initialOffset())
    with make_store(path) as store:
        store["race:1"].add({"n": "5"})
    later = reader_of(path, streams=names, failOnDataLoss="false")
    assert batch(later, end)[0] == [5]
    for each in (reader, lossy, later):
        each.stop()
    assert pins(path) == 0


def test_offsets_of_an_older_checkpoint(path: Path) -> None:
    """They have no numbers of streams."""
    reader = reader_of(path)
    _, end = batch(reader, reader.initialOffset())
    older = {"streams": {name: each[:2] for name, each in end["streams"].items()}}
    with make_store(path) as store:
        store["race:1"].add({"n": "30"})
    assert batch(reader, older)[0] == [30]
    reader.stop()


def test_lost_entries_are_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With failOnDataLoss=false: by batches that are cut behind it, planned, and repeated."""
    reader = reader_of(path, failOnDataLoss="false", maxRowsPerTrigger=9)
    _, end = batch(reader, reader.initialOffset())
    assert caplog.messages == []
    with make_store(path) as store:
        store["race:1"].trim(max_entries=20, approximate=False)
        store["race:1"].delete(store["race:1"].last.id)
    found: list[int] = []
    while True:
        some, after = batch(reader, end)
        if after == end:
            break
        assert some
        found, end = found + some, after
    assert sorted(n for n in found if n < 100) == [*range(10, 29)]
    (line,) = caplog.messages
    # Of 30 entries some were read in the first batch; 11 went, of which those count that were not.
    assert f"goes on without them: of {path} {30 - 4 - 19} entries of stream 'race:1' " in line
    caplog.clear()
    with make_store(path) as store:
        store.drop("race:1")
        store.create("race:1")
    for _ in range(3):  # it is empty, and told once
        some, end = batch(reader, end)
        assert some == []
    (line,) = caplog.messages
    assert "stream 'race:1' was dropped, and made anew" in line
    with make_store(path) as store:
        store["race:1"].add({"n": "1"}, id="1-0")
    assert batch(reader, end)[0] == [1]
    assert caplog.messages == [line]
    reader.stop()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"race:1": "25-0", "race:2": "latest"}'}, [*range(25, 30)]),
        ({"startingOffsets": '{"race:1": "latest"}'}, [*range(100, 110)]),
        ({"startingOffsets": '{"race:2": "earliest", "race:1": "29-0"}'}, [29, *range(100, 110)]),
        ({"startingTimestamp": "28"}, [27, 28, 29]),
        ({"startTime": "1970-01-01T00:00:00.029"}, [28, 29]),
    ],
)
def test_a_query_begins_where_a_batch_read_does(
    tmp_path: Path, options: dict[str, str], wanted: list[int]
) -> None:
    """By stream, or at a time; and where it began is kept when the first batch is repeated."""
    path = tmp_path / "store"
    with make_store(path) as store:
        store["race:1"].add_many((((n + 1, 0), {"n": n}) for n in range(30)), batch=7)
        store["race:2"].add_many((((n - 99, 0), {"n": n}) for n in range(100, 110)), batch=7)
    source = source_of(path, streams="race:*", **options)
    source.schema()  # at load, without a schema
    reader = reader_of(path, **options)
    start = reader.initialOffset()
    with make_store(path) as store:
        store["race:1"].add({"n": "1001"}, id="1001-0")
        store["race:2"].add({"n": "1002"}, id="1001-0")
        store["race:3"].add({"n": "1003"}, id="1001-0")
    some, end = batch(reader, start)
    assert some == [*wanted, 1001, 1002, 1003]
    other = reader_of(path, **options)
    assert rows(other, other.initialOffset(), end) == some
    for each in (reader, other):
        each.stop()
    assert pins(path) == 0


def test_an_offset_of_a_stream_that_is_not_there(path: Path) -> None:
    """It is told before the first batch."""
    reader = reader_of(path, startingOffsets='{"race:9": "5-0"}')
    with pytest.raises(OptionError, match="names 'race:9', which is not among the streams"):
        reader.initialOffset()


def test_the_end_of_the_streams_is_reported(path: Path) -> None:
    """For the progress of the query: as of the last batch, whose end it is beside."""
    reader = reader_of(path, maxRowsPerTrigger=9)
    assert reader.reportLatestOffset() is None

    def added(offset: dict[str, Any]) -> int:
        return sum(each[1] for each in offset["streams"].values())

    some, end = batch(reader, reader.initialOffset())
    assert added(reader.reportLatestOffset()) - added(end) == 40 - len(some) > 0
    with make_store(path) as store:
        store["race:1"].add({"n": "30"})
    more, end = batch(reader, end)
    assert added(reader.reportLatestOffset()) - added(end) == 41 - len(some + more)
    assert json.loads(json.dumps(reader.reportLatestOffset())) == reader.reportLatestOffset()
    reader.stop()


def test_a_pattern_that_finds_nothing_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(path, streams="race:*,lap:*")
    some, end = batch(reader, reader.initialOffset())
    assert len(some) == 40
    assert batch(reader, end) == ([], end)
    assert caplog.messages == [f"option 'streams': no stream of {path} has a name like 'lap:*'"]
    reader.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "x"}, "option 'startingOffsets'"),
        ({"startingOffsets": '{"race:1": 5}'}, "the offset of 'race:1' must be text"),
        ({"startingOffsets": '{"race:1": "x"}'}, "option 'startingOffsets' is earliest, latest"),
        ({"startingOffsets": '{"lap:1": "5-0"}'}, "names 'lap:1', which is not among the streams"),
        ({"startingOffsets": "1-0", "startTime": "5"}, "give 'startingOffsets' or 'startTime'"),
        ({"startingTimestamp": "-1h"}, "say the same whenever it is started again"),
        ({"startingTimestamp": "1700000000"}, "write 1700000000000 or"),
        ({"endingTimestamp": "5"}, "for batch reads"),
        ({"maxOffsetsPerTrigger": "5"}, "give 'maxRowsPerTrigger'"),
        ({"subscribe": "race:1"}, "give 'streams'"),
        ({"startId": "1-0"}, "for batch reads"),
        ({"maxRowsPerTrigger": "0"}, "'maxRowsPerTrigger' must be a number"),
        ({"progressGroup": ""}, "'progressGroup' must name"),
        ({"failOnDataLoss": "no"}, "'failOnDataLoss' is true or false"),
        ({"maxRowPerTrigger": "1"}, "no option"),
    ],
)
def test_options_that_cannot_be(path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        reader_of(path, **options).initialOffset()
