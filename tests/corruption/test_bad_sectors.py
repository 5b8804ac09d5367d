"""Prevents one unreadable sector of a segment from ending the process, or from costing more than
what stands on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore import format as fmt
from logstore.errors import (
    CorruptFrameError,
    DamagedStoreError,
    FileSystemError,
    UnreadableError,
)
from logstore.ids import parse_id
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from logstore.recovery.salvage.run import salvage
from tests.corruption.bad_sectors import PAGE_BYTES, SpoiledDisk, why_none
from tests.support.inside import engine_of
from tests.support.processes import run_program
from tests.tools.commands import no_traceback, process
from tests.wire.served import serving

pytestmark = pytest.mark.alone  # mounts that all processes share
ROUNDS, A_ROUND, PAD = 12, 60, "p" * 150
STREAMS = ("hurt", "well")


class Node:
    """A sealed node: where its frame lies, and its entries."""

    def __init__(self, stream: str, position: int, size_bytes: int, ids: list[str]) -> None:
        self.stream, self.ids = stream, ids
        self.segment, self.offset = fmt.position_parts(position)
        self.end = self.offset + fmt.FRAME_HEAD_BYTES + size_bytes

    def __repr__(self) -> str:
        return f"{self.stream} {self.ids[0]}..{self.ids[-1]} at {self.segment}:{self.offset}"


class Hurt:
    """A store on a disk with one unreadable page, in the middle of a node of the stream hurt."""

    def __init__(self, disk: SpoiledDisk) -> None:
        self.disk = disk
        self.path = self.disk.at / "store"
        with logstore.open(self.path, background=False, segment_bytes=64 << 10) as store:
            for round in range(ROUNDS):
                for name in STREAMS:
                    rows = [
                        ((1000 * round + n + 1, 0), {"n": str(n), "pad": PAD})
                        for n in range(A_ROUND)
                    ]
                    store.stream(name).add_many(rows)
            store.stream("hurt").group("g").create("0")
            self.entries = {name: [(e.id, dict(e)) for e in store.stream(name)] for name in STREAMS}
            self.nodes = _nodes(store, self.entries)
        # Those that begin a round were never open, so that they stand in the log once.
        once = [each for each in self.nodes if each.stream == "hurt" and each.ids[0][-4:] == "01-0"]
        self.victim = once[len(once) // 2]
        size = self.victim.end - self.victim.offset
        self.bad = (self.victim.offset + size // 2) // PAGE_BYTES * PAGE_BYTES
        self.segment = file_names.segment(self.path, self.victim.segment)
        assert self.segment != max((self.path / "log").glob("*.log"))  # it is sealed

    def spoil(self) -> None:
        """Make the page unreadable."""
        self.disk.spoil((self.segment, self.bad))
        fd = os.open(self.segment, os.O_RDONLY)
        try:
            with pytest.raises(OSError, match="Input/output"):
                os.pread(fd, 1, self.bad)
        finally:
            os.close(fd)

    @property
    def lost(self) -> dict[str, list[str]]:
        """The IDs of the nodes that the page is a part of, by stream."""
        found: dict[str, list[str]] = {name: [] for name in STREAMS}
        for each in self.nodes:
            here = each.segment == self.victim.segment
            if here and each.offset < self.bad + PAGE_BYTES and self.bad < each.end:
                found[each.stream] += each.ids
        return found

    def left(self, name: str) -> list[str]:
        """The IDs of all other entries of a stream."""
        return [str(id) for id, _ in self.entries[name] if str(id) not in self.lost[name]]


def _nodes(store: logstore.Store[str], entries: dict[str, list[Any]]) -> list[Node]:
    generation = engine_of(store).index()
    found: list[Node] = []
    with generation.env.begin() as txn:
        index = IndexTxn(generation, txn)
        for _, number, master, locator in index.all_nodes():
            record = index.record(number)
            assert record is not None
            name = record.name.decode()
            ids = [str(id) for id, _ in entries[name] if master <= id <= locator.last]
            found.append(Node(name, locator.position, locator.payload_bytes, ids))
    return found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SpoiledDisk]:
    """Skips, with the reason, where there can be none."""
    why = why_none()
    if why:
        print(why)
        pytest.skip(why)
    made = SpoiledDisk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def hurt(disk: SpoiledDisk) -> Hurt:
    made = Hurt(disk)
    made.spoil()
    return made


def got(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return stream.get(hurt.victim.ids[0])


def ranged(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return list(stream.range())


def backward(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return list(stream.range(reverse=True))


def searched(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return list(stream.range(where={"n": "3"}))


def scanned(stream: logstore.Stream[str], hurt: Hurt) -> object:
    pytest.importorskip("pyarrow", reason="a scan needs the extra arrow")
    return list(stream.scan(columns=["n"]))


def counted(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return stream.count(hurt.victim.ids[1], "+")


def grouped(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return stream.group("g").read("me", count=100_000)


def dumped(stream: logstore.Stream[str], hurt: Hurt) -> object:
    return stream.dump()


WAYS = [got, ranged, backward, searched, scanned, counted, grouped, dumped]


def test_reads_of_an_unreadable_page_are_errors_and_the_process_goes_on(hurt: Hurt) -> None:
    """In one process, one after the other: each would end it by SIGBUS, or say less."""
    with logstore.open(hurt.path, background=False) as store:
        for way in WAYS:
            with pytest.raises(UnreadableError, match="logstore check") as caught:
                way(store.stream("hurt"), hurt)
            error = caught.value
            assert isinstance(error, FileSystemError), way
            assert isinstance(error, CorruptFrameError), way
            assert error.segment == hurt.victim.segment, way
            assert error.offset is not None
            assert hurt.bad <= error.offset < hurt.bad + PAGE_BYTES, way
            assert error.errno == 5, way
            if way is not dumped:
                assert error.stream == b"hurt", way
        lost = hurt.lost
        assert store.stream("hurt").count() == ROUNDS * A_ROUND
        first, last = lost["hurt"][0], lost["hurt"][-1]
        before = [str(e.id) for e in store.stream("hurt").range("-", f"({first}")]
        behind = [str(e.id) for e in store.stream("hurt").range(f"({last}", "+")]
        assert before + behind == hurt.left("hurt")
        if not lost["well"]:
            assert [str(e.id) for e in store.stream("well")] == hurt.left("well")
        id = store.stream("hurt").add({"n": "new"})
        entry = store.stream("hurt").get(id)
        assert entry is not None
        assert entry["n"] == b"new"


def test_a_server_answers_the_client_and_lives_on(hurt: Hurt) -> None:
    """Also after a restart; other clients do not notice."""
    for _ in range(2):
        with serving(hurt.path) as served:
            one, other = redis.Redis(port=served.port), redis.Redis(port=served.port)
            with pytest.raises(redis.ResponseError, match="the disk does not give back"):
                one.xrange("hurt")
            with pytest.raises(redis.ResponseError, match="the disk does not give back"):
                one.xread({"hurt": "0"})
            assert one.ping()
            assert other.xlen("hurt") == ROUNDS * A_ROUND
            assert len(other.xrange("hurt", count=1)) == 1
            one.close()
            other.close()


def test_check_goes_on_behind_it_and_names_the_entries(hurt: Hurt) -> None:
    lost = hurt.lost
    report = check(hurt.path)
    assert len(report.damage) == 1
    damage = report.damage[0]
    assert damage.segment == hurt.victim.segment
    assert hurt.victim.offset >= damage.from_offset > hurt.victim.offset - 2 * PAGE_BYTES
    assert hurt.victim.end <= damage.to_offset < hurt.victim.end + 2 * PAGE_BYTES
    assert "the disk does not give back" in damage.why
    assert report.segments == len(list((hurt.path / "log").glob("*.log")))
    told = {(each.stream.decode(), str(each.first), str(each.last)) for each in report.concerned}
    assert ("hurt", hurt.victim.ids[0], hurt.victim.ids[-1]) in told
    nodes = {(each.stream, each.ids[0], each.ids[-1]) for each in hurt.nodes}
    assert told <= {each for each in nodes if each[1] in lost[each[0]]}


@pytest.mark.parametrize("without", ["nothing", "index", "index and hints"])
def test_a_salvage_brings_back_everything_else(hurt: Hurt, tmp_path: Path, without: str) -> None:
    if "index" in without:
        shutil.rmtree(hurt.path / "index")
    if "hints" in without:
        for each in (hurt.path / "log").glob("*.hint"):
            each.unlink()
    lost = hurt.lost
    report = salvage(hurt.path, tmp_path / "new")
    with logstore.open(tmp_path / "new", background=False) as store:
        for name in STREAMS:
            kept = {str(e.id): dict(e) for e in store.stream(name)}
            before = {str(id): fields for id, fields in hurt.entries[name]}
            assert all(before[id] == fields for id, fields in kept.items())
            missing = before.keys() - kept.keys()
            assert missing <= set(lost[name])
            told = [each for each in report.gone if each.stream == name.encode()]
            assert all(
                any(each.first <= parse_id(id) <= each.last for each in told) for id in missing
            )
            if name == "hurt":
                assert set(hurt.victim.ids) <= missing
                assert sum(each.entries or 0 for each in told) == len(missing)


def test_the_commands_say_it_without_a_traceback(hurt: Hurt, tmp_path: Path) -> None:
    shown = process("check", str(hurt.path))
    assert shown.returncode == 1
    for id in (hurt.lost["hurt"][0], hurt.lost["hurt"][-1]):
        assert id in shown.stdout.decode()
    assert no_traceback(shown.stderr)
    done = process("recover", str(hurt.path), "--salvage", str(tmp_path / "new"))
    assert no_traceback(done.stderr)
    assert done.returncode == 3
    assert (tmp_path / "new" / "STORE").exists()


def test_copies_and_rewrites_of_an_unreadable_page_are_errors(hurt: Hurt, tmp_path: Path) -> None:
    """A backup, a shipped store and a compaction must not lack the page unsaid."""
    with logstore.open(hurt.path, background=False) as store:
        ways: list[Callable[[], object]] = [
            lambda: store.backup(tmp_path / "backup"),
            lambda: store.ship(str(tmp_path / "shipped")),
        ]
        for way in ways:
            with pytest.raises(UnreadableError, match="logstore check"):
                way()
        assert not (tmp_path / "backup" / "STORE").exists()
        store.stream("hurt").delete(*hurt.left("hurt")[::2])
        store.stream("well").delete(*hurt.left("well")[::2])
        with pytest.raises(UnreadableError) as caught:
            store.compact(full=True)
        assert caught.value.segment == hurt.victim.segment
        assert [str(e.id) for e in store.stream("hurt").range("-", f"({hurt.lost['hurt'][0]}")]


def test_a_lost_index_is_built_around_it(hurt: Hurt) -> None:
    """With and without hints: an open must not end at a page of a sealed segment."""
    shutil.rmtree(hurt.path / "index")
    with logstore.open(hurt.path, background=False) as store:
        assert store.stream("hurt").count() == ROUNDS * A_ROUND  # from the hint
    shutil.rmtree(hurt.path / "index")
    for each in (hurt.path / "log").glob("*.hint"):
        each.unlink()
    with logstore.open(hurt.path, background=False) as store:
        assert [str(e.id) for e in store.stream("hurt")] == hurt.left("hurt")


def other_file(path: Path, what: str) -> Path:
    """A file of a store that is no segment."""
    if what in ("hint", "checkpoint"):
        found = {
            "hint": (path / "log").glob("*.hint"),
            "checkpoint": (path / "checkpoint").iterdir(),
        }
        return max(found[what])
    return path / what


@pytest.mark.parametrize(
    ("what", "offset"),
    [("BOOT", 0), ("WAKE", 5 * PAGE_BYTES), ("hint", 0), ("checkpoint", 0), ("RESERVE", 0)],
)
def test_an_open_does_without_what_can_be_made_anew(
    disk: SpoiledDisk, what: str, offset: int
) -> None:
    path = Hurt(disk).path
    with logstore.open(path, background=False) as store:
        store.checkpoint()
    disk.spoil((other_file(path, what), offset))
    for lose_the_index in (False, True):
        if lose_the_index:
            shutil.rmtree(path / "index")
        with logstore.open(path, background=False) as store:
            assert len(store.stream("hurt")) == ROUNDS * A_ROUND
    check(path)  # says what it finds, and ends


@pytest.mark.parametrize(
    ("what", "told"), [("WAKE", "remove that file, open the store, and run 'logstore check'"),
                       ("STORE", "'logstore recover --salvage' takes out the rest")],
)  # fmt: skip
def test_an_open_is_refused_without_what_cannot(
    disk: SpoiledDisk, tmp_path: Path, what: str, told: str
) -> None:
    """In a process that lives on; and what the message advises brings back everything."""
    path = Hurt(disk).path
    disk.spoil((path / what, 0))
    with pytest.raises(UnreadableError, match=told) as raised:
        logstore.open(path)
    assert str(path / what) in str(raised.value)
    if what == "WAKE":
        with logstore.open(path, readonly=True) as store:  # it needs no words of others
            assert len(store.stream("hurt")) == ROUNDS * A_ROUND
        (path / what).unlink()
        with logstore.open(path, background=False) as store:
            assert len(store.stream("hurt")) == ROUNDS * A_ROUND
        assert check(path).as_dict()["clean"]
    assert salvage(path, tmp_path / "out").entries == 2 * ROUNDS * A_ROUND


CUT = """
import os, sys, logstore
path, segment, id = sys.argv[1:]
with logstore.open(path, background=False) as store:
    stream = store.stream("hurt")
    assert stream.get(id) is not None  # no node behind it is kept
    os.truncate(segment, 0)
    for way in (
        lambda: list(stream.range()),
        lambda: list(stream.range(where={"n": "3"})),
        lambda: list(stream.scan(columns=["n"])),
    ):
        try:
            way()
        except logstore.errors.CorruptFrameError as error:
            print(error.segment, error.stream.decode(), error.offset >= 0)
    id = stream.add({"n": "new"})
    print(len(list(stream.range(id))))
"""


def test_a_segment_that_is_cut_under_an_open_store_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        for _ in range(ROUNDS):
            store.stream("hurt").add_many([{"n": str(n), "pad": PAD} for n in range(A_ROUND)])
        first = next(iter(store.stream("hurt"))).id
    segment = min((path / "log").glob("*.log"))
    done = run_program(CUT, path, segment, first, timeout=60)
    *errors, new = done.stdout.splitlines()
    assert errors == ["1 hurt True"] * 3
    assert new == "1"


KILLED = """
import os, sys, logstore
store = logstore.open(sys.argv[1], background=False, sync="os")
for n in range(300):
    store.stream("s").add({"n": str(n), "pad": "p" * 100})
os._exit(0)
"""


@pytest.mark.parametrize("where", ["middle", "end"])
def test_a_tail_that_cannot_be_read_is_never_cut_off(disk: SpoiledDisk, where: str) -> None:
    """Prevents a crash and a bad sector from being taken for a torn tail: what stands there may be
    durable, and what stands behind it is."""
    path = disk.at / "store"
    run_program(KILLED, path, timeout=60)
    (segment,) = (path / "log").glob("*.log")
    size = segment.stat().st_size
    disk.spoil((segment, size // 2 if where == "middle" else size - 1))
    for _ in range(2):
        with pytest.raises(DamagedStoreError, match="logstore check"):
            logstore.open(path, background=False)
        assert segment.stat().st_size == size
        assert not (path / "quarantine").exists()
    report = check(path)
    assert [each.segment for each in report.damage] == [1]
    found = recover(path)
    assert any("does not give back" in each.why for each in found.damage)
    with logstore.open(path, background=False) as store:
        kept = [int(e["n"]) for e in store.stream("s")]
        assert 100 < len(kept) < 300
        assert kept == sorted(set(kept))
        store.stream("s").add({"n": "300", "pad": ""})
        assert len(list(store.stream("s"))) == len(kept) + 1
