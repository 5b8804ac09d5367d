"""Prevents an add in compiled code that does otherwise than the pipeline.

Two copies of one store are driven alike, one of them without a lane: the same IDs or errors are
told, the log is the same byte for byte, and so are the rows of the index once that has followed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.runtime import record_cache
from tests.engine.lane_log import Store, log_of
from tests.support.inside import engine_of, follow, lane_commits

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")

FAR_MS = 1 << 50  # above the time of now, so that "*" is the next sequence


def rows_of(store: Store) -> dict[bytes, dict[bytes, bytes]]:
    """All rows of the index, by database."""
    follow(store)
    generation = engine_of(store).index()
    found: dict[bytes, dict[bytes, bytes]] = {}
    with generation.env.begin() as txn:
        for name in ("main", "names", "nodes", "segments"):
            with txn.cursor(db=getattr(generation, name)) as cursor:
                found[name.encode()] = dict(cursor)
    main = found[b"main"]  # which has the roots of the others, too
    return found | {b"main": {key: main[key] for key in main if not key.isalpha()}}


def pair(path: Path, **options: Any) -> tuple[Store, Store]:
    """Two copies of a store with a stream, the second without a lane."""
    with logstore.open(path / "lane", background=False, **options) as store:
        for name in "ab":
            store.stream(name).add({"temp": "1", "hum": "2"}, f"{FAR_MS}-0")
    shutil.copytree(path / "lane", path / "pipeline")
    opened = [
        logstore.open(path / name, background=False, **options) for name in ("lane", "pipeline")
    ]
    engine_of(opened[1])._close_lane()
    return opened[0], opened[1]


class Word(str):
    """A text of a type of its own."""


class History:
    """Random adds, drawn from one seed, so that two of them are alike."""

    def __init__(self, store: Store, seed: int, kinds: str) -> None:
        self.store, self.rng, self.kinds = store, random.Random(seed), kinds
        self.names = ["a", "b"]
        if "n" in kinds:
            self.names += [f"n{number}" for number in range(60)]

    def value(self) -> Any:
        """A value that the API takes, or refuses."""
        rng = self.rng
        return rng.choice(
            [
                lambda: rng.random() * 10.0 ** rng.randrange(-300, 300),
                lambda: rng.choice([float("inf"), float("-inf"), float("nan"), -0.0, 1e16, 5.0]),
                lambda: "".join(chr(rng.choice([65, 233, 8364, 128512])) for _ in range(9)),
                lambda: rng.choice(["", "ü", "12", "007", "-5", b"\xff\xfe", b"", "\U0010ffff"]),
                lambda: rng.choice([0, -1, 1 << 63, -(1 << 63), 1 << 70, 127, 128, 4095]),
                lambda: rng.choice(["\udce9", "\ud800", True, None, [1]]),
                lambda: Word("eigen" * rng.randrange(4)),
                lambda: "x" * rng.randrange(200),
                lambda: "ä" * rng.randrange(200),
            ]
        )()

    def fields(self) -> Any:
        """An entry."""
        rng = self.rng
        if rng.random() < 0.4:
            return {"temp": self.value(), "hum": self.value()}
        if rng.random() < 0.2:
            return [("temp", self.value()), ("temp", self.value()), ("é", 5)]
        names = ["temp", b"temp", "größe", 7, 1.5, "7", Word("w"), "x"]
        return {name: self.value() for name in rng.sample(names, rng.randrange(4))}

    def id(self, last: Any) -> Any:
        """An ID, some of them not above the last one."""
        rng, (ms, seq) = self.rng, last
        return rng.choice(
            [
                "*", "*", b"*", f"{ms}-*", f"{ms + 1}-*", f"{ms}-{seq + 1}", f"{ms}-{seq}",
                f"{ms + 2}", b"%d-%d" % (ms + 1, 5), logstore.StreamID(ms, seq + 7), (ms, seq + 2),
                "0-0", "5-",
                f"{ms}-0{seq + 3}", "-1", f"{ms - 5}-*", f"{1 << 64}-1", "x", "é-1",
            ]
        )  # fmt: skip

    def trimming(self, stream: Any) -> dict[str, Any]:
        """What is to go."""
        rng = self.rng
        asked: dict[str, Any] = rng.choice(
            [
                {},
                {"max_entries": rng.choice([0, 1, 5, 40, 150, 1000, -1, "5"])},
                {
                    "min_id": rng.choice(
                        [f"{FAR_MS}-{rng.randrange(60)}", "0", stream.last_id, "-", "9"]
                    )
                },
                {"max_entries": 50, "min_id": "1"},
            ]
        )
        asked["approximate"] = rng.choice([True, True, True, False])
        if rng.random() < 0.1:
            asked["limit"] = rng.choice([0, 10, 1000, -1])
        return asked

    def step(self) -> Any:
        """One call; what it gave or raised."""
        rng = self.rng
        stream = self.store.stream(rng.choice(self.names))
        fields, options = self.fields(), {}
        if "i" in self.kinds and rng.random() < 0.5:
            options["id"] = self.id(stream.last_id)
        if "t" in self.kinds and rng.random() < 0.6:
            options |= self.trimming(stream)
        if self.is_new(stream):
            options["id"] = f"{FAR_MS}-*"
        if "d" in self.kinds and rng.random() < 0.02:
            return self.deleted(stream)
        if "m" in self.kinds and rng.random() < 0.2:
            return self.transaction()
        return self.told(lambda: stream.add(fields, **options))

    def is_new(self, stream: Any) -> bool:
        """Whether "*" would be of now, and so another ID each time."""
        return bool(stream.last_id.ms < FAR_MS)

    def deleted(self, stream: Any) -> Any:
        """Some entries of a stream go."""
        ids = [entry.id for entry in stream.range()]
        return stream.delete(*self.rng.sample(ids, min(len(ids) - 1, 3))) if len(ids) > 1 else 0

    def transaction(self) -> Any:
        """Adds of one commit."""
        rng = self.rng
        rows = [
            (rng.choice(self.names), {"temp": rng.choice([1.5, "é", 7]), "hum": "x" * 30},
             rng.choice([{}, {"max_entries": 100}, {"id": f"{FAR_MS}-*"}, {"max_entries": 20}]))
            for _ in range(rng.randrange(1, 6))
        ]  # fmt: skip

        for name, _, asked in rows:
            if self.is_new(self.store.stream(name)):
                asked["id"] = f"{FAR_MS}-*"

        def commit() -> list[Any]:
            with self.store.transaction() as opened:
                added = [opened.stream(name).add(row, **asked) for name, row, asked in rows]
            return [one.id for one in added]

        return self.told(commit)

    def told(self, call: Callable[[], Any]) -> Any:
        """What a call gives, or its error."""
        try:
            return call()
        except logstore.Error as error:
            return type(error), str(error)


def alike(
    path: Path,
    seed: int,
    kinds: str,
    steps: int,
    change: Callable[[Store], object] = lambda _: None,
    **options: Any,
) -> float:
    """Drive both alike; which share of the steps were commits of the lane."""
    encoding = options.get("encoding")
    lane, pipeline = pair(path, **options)
    with lane, pipeline:
        change(lane)
        ours, theirs = History(lane, seed, kinds), History(pipeline, seed, kinds)
        lane_commits(lane)
        for number in range(steps):
            told = ours.step()
            assert told == theirs.step(), (number, encoding)
            if not number % 50:
                assert log_of(lane) == log_of(pipeline)
        laned = lane_commits(lane)
        assert log_of(lane) == log_of(pipeline)
        assert rows_of(lane) == rows_of(pipeline)
    return laned / steps


@pytest.mark.parametrize("encoding", [None, "utf-8", "latin-1", "ascii", "cp500"])
@pytest.mark.parametrize("seed", range(3))
def test_any_values(tmp_path: Path, seed: int, encoding: str | None) -> None:
    assert alike(tmp_path, seed, "", 400, encoding=encoding) > 0.2


@pytest.mark.parametrize("seed", range(5))
def test_ids_that_are_given(tmp_path: Path, seed: int) -> None:
    assert alike(tmp_path, seed, "id", 400) > 0.25


@pytest.mark.parametrize("seed", range(8))
def test_trimming(tmp_path: Path, seed: int) -> None:
    assert alike(tmp_path, seed, "itd", 500) > 0.1


@pytest.mark.parametrize("seed", range(4))
def test_transactions(tmp_path: Path, seed: int) -> None:
    assert alike(tmp_path, seed, "itdm", 300) > 0.1


def few_handles(store: Store) -> None:
    """The lane may hold some of the streams."""
    lane: Any = store._live().lane
    lane.held_bytes_max = 20_000


@pytest.mark.parametrize("seed", range(4))
def test_more_streams_than_are_held(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_cache, "CACHED_STREAMS_MAX", 5)
    monkeypatch.setattr(record_cache, "SHRINK_COMMITS", 1)
    assert alike(tmp_path, seed, "nitdm", 900, few_handles) > 0.3


def test_handles_take_no_more_than_they_may(tmp_path: Path) -> None:
    """What is given up is looked up again, also behind commits that the index does not know yet."""
    rng = random.Random(3)
    with logstore.open(tmp_path / "store", background=False) as store:
        few_handles(store)
        lane: Any = store._live().lane
        streams = [store.stream(f"s{number}") for number in range(100)]
        added: list[list[Any]] = [[stream.add({"n": 0})] for stream in streams]
        lane_commits(store)
        for number in range(3000):
            at = rng.randrange(100)
            added[at].append(streams[at].add({"n": number}))
            assert lane.held_bytes <= lane.held_bytes_max + 70 * 8192  # and what is owed
        assert lane_commits(store) > 2500
        assert lane.held_bytes < 80 * 8192
        for stream, ids in zip(streams, added, strict=True):
            assert [entry.id for entry in stream.range()] == ids


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"temp": 1.5, "hum": "é"}, {}),
        ({"größe": "groß"}, {}),
        ([("temp", "1"), ("temp", "2")], {}),
        ({Word("temp"): Word("1")}, {}),
        ({"temp": 1 << 80}, {}),
        ({"temp": "1"}, {"id": f"{FAR_MS + 1}-0"}),
        ({"temp": "1"}, {"id": b"%d-*" % (FAR_MS + 1)}),
        ({"temp": "1"}, {"id": (FAR_MS + 1, 0)}),
        ({"temp": "1"}, {"id": logstore.StreamID(FAR_MS + 1, 0)}),
        ({"temp": "1"}, {"max_entries": 1000}),
        ({"temp": "1"}, {"max_entries": 1000, "approximate": False}),
        ({"temp": "1"}, {"max_entries": 2, "limit": 10}),
        ({"temp": "1"}, {"min_id": "5"}),
        ({"temp": "1"}, {"min_id": "5", "approximate": False}),
        ({"temp": "1"}, {"create": False}),
    ],
)
def test_these_are_commits_of_the_lane(
    tmp_path: Path, fields: Any, options: dict[str, Any]
) -> None:
    lane, pipeline = pair(tmp_path)
    with lane, pipeline:
        for store in (lane, pipeline):
            store.stream("a").add({"temp": "1", "hum": "2"}, sync="os")
        lane_commits(lane)
        ids = [store.stream("a").add(fields, **options) for store in (lane, pipeline)]
        assert lane_commits(lane) == 1
        assert ids[0] == ids[1]
        assert log_of(lane) == log_of(pipeline)
        assert rows_of(lane) == rows_of(pipeline)
