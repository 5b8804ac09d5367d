"""Prevents the small parts of recovery from going wrong where a whole store seldom takes them:
sizes at a bound, names that are there already, what is told about a failed sync.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction.segments import CompactionReport
from logstore.errors import DamagedStoreError, NotAStoreError
from logstore.fs import FileSystem
from logstore.ids import StreamID
from logstore.log import chain, names, reader
from logstore.options import StoreLimits
from logstore.recovery import backup, create, unsynced
from logstore.recovery.check import CheckReport
from logstore.recovery.replay_guard import ReplayGuard
from logstore.recovery.report import Damage, Gone, RecoveryReport
from logstore.recovery.salvage.nodes import Wanted
from tests.recovery.order import Told

LIMITS = StoreLimits()


def test_a_new_store_is_durable_from_the_outside_in(tmp_path: Path) -> None:
    """The directories above it, its own name, its folders, the first segment, and STORE last."""
    fs = Told()
    place = tmp_path / "a" / "b" / "store"
    create.make_place(fs, place)
    assert fs.done == [("directory", name) for name in (tmp_path.name, "a", "b")]
    fs.done.clear()
    create.create_store(fs, place, LIMITS, 1)
    assert fs.done[0] == ("directory", "b")
    number = fs.done.index(("rename", names.segment(place, 1).name))
    store = fs.done.index(("rename", names.STORE))
    whole = [at for at, done in enumerate(fs.done) if done == ("directory", "store")]
    assert any(number < at < store for at in whole)
    assert whole[-1] > store
    assert ("directory", names.LOG) in fs.done[number:store]


def test_a_directory_that_may_become_a_store(tmp_path: Path) -> None:
    """Empty, or begun and left; not with other files, nor with a log that has frames."""
    fs = FileSystem()
    create.check_free(fs, tmp_path)
    for folder in create.FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / names.LOCK).touch()
    (tmp_path / f"x{names.TEMPORARY}").touch()
    first = names.segment(tmp_path, 1)
    first.write_bytes(bytes(fmt.SEGMENT_HEAD_BYTES))
    create.check_free(fs, tmp_path)
    first.write_bytes(bytes(fmt.SEGMENT_HEAD_BYTES + 1))
    with pytest.raises(NotAStoreError, match="other files"):
        create.check_free(fs, tmp_path)
    with pytest.raises(NotAStoreError, match="other files"):
        create.create_store(fs, tmp_path, LIMITS, 1)
    (tmp_path / names.STORE).touch()
    create.check_free(fs, tmp_path)  # it is one: whoever reads STORE judges it
    for name in (names.STORE, names.segment(tmp_path, 1)):
        (tmp_path / name).unlink()
    (tmp_path / "letter.txt").touch()
    with pytest.raises(NotAStoreError, match="other files"):
        create.check_free(fs, tmp_path)


@pytest.mark.parametrize("limit", [None, 0, 1, 9, 10, 11, 25])
def test_a_copy_has_as_many_bytes_as_it_should(
    limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are no multiple of what is copied at once; a file that is shorter than it was
    is told, as a copy of it would be taken for whole."""
    monkeypatch.setattr(backup, "COPY_BYTES", 4)
    source, target = tmp_path / "from", tmp_path / "to"
    source.write_bytes(b"0123456789")
    fs = Told()
    if limit is not None and limit > 10:
        with pytest.raises(DamagedStoreError, match="shorter than it was"):
            backup._copy(fs, source, fs.open_new(target), limit)
        return
    backup._copy(fs, source, fs.open_new(target), limit)
    assert target.read_bytes() == b"0123456789"[:limit]
    assert fs.done == [("sync", "to")]


def _store(path: Path, **options: int) -> logstore.Store[bytes]:
    return logstore.open(path, encoding=None, segment_bytes=64 << 10, background=False, **options)  # type: ignore[call-overload,no-any-return]


def test_segments_are_written_anew_from_a_place_on(tmp_path: Path) -> None:
    """The same bytes in new files, each synced before it has the name, and the name after it."""
    with _store(tmp_path / "store") as store:
        for _ in range(5):
            store.stream("s").add({b"f": bytes(60_000)})
        engine = store._engine()
        links = list(chain.main_links(engine.fs, engine.path, engine.uuid))
        assert len(links) >= 4
        files = [names.segment(engine.path, link.number) for link in links]
        before = [(path.read_bytes(), path.stat().st_ino) for path in files]
        left = files[1].with_name(files[1].name + names.TEMPORARY)
        left.write_bytes(bytes(len(before[1][0]) + 9000))  # of a run that did not end
        fs = engine.fs = Told()
        assert unsynced.rewrite(engine, fmt.position(links[1].number, 99)) == len(links) - 1
        assert engine.wake.failed_at == 0
        for path, (data, inode) in list(zip(files, before, strict=True))[1:]:
            assert path.read_bytes() == data[: path.stat().st_size]
            assert path.stat().st_size <= len(data)
            assert path.stat().st_ino != inode
            at = fs.done.index(("rename", path.name))
            assert fs.done[at - 1] == ("sync", path.name + names.TEMPORARY)
            assert fs.done[at + 1] == ("directory", names.LOG)
        assert files[0].stat().st_ino == before[0][1]


@pytest.mark.parametrize("node_max_entries", [8, 100])
def test_what_a_failed_sync_puts_at_risk_from_every_commit_on(
    tmp_path: Path, node_max_entries: int
) -> None:
    """Entries, frames and commits behind any position of a log of several segments; also if nodes
    are sealed there that began before."""
    with _store(tmp_path / "store", node_max_entries=node_max_entries) as store:
        added: list[tuple[int, bytes, StreamID]] = []  # where the log ended, the stream, the entry
        engine = store._engine()

        def add(name: bytes, *rows: int, size: int = 5) -> None:
            at = engine.wake.applied
            made = [StreamID(ms, ms * 7 % 5 + 1) for ms in rows]
            ids = store.stream(name).add_many([(id, {b"f": bytes(size)}) for id in made])
            assert list(ids) == made
            added.extend((at, name, id) for id in made)

        for ms in range(10, 400, 10):
            add(b"one", ms)
            add(b"two", ms, ms + 1, ms + 2)
        add(b"large", *range(1, 8), size=30_000)
        add(b"one", *range(1000, 1300))
        add(b"two", 9000)
        frames = [
            each
            for link in chain.main_links(engine.fs, engine.path, engine.uuid)
            for each in reader.scan(
                engine.fs.open(names.segment(engine.path, link.number)), engine.seed, link.number,
                link.start_offset, link.end_offset,
            )
        ]  # fmt: skip
        assert len({each.segment for each in frames}) > 2
        starts = sorted({at for at, *_ in added if at})
        for start in starts[:: len(starts) // 12] + starts[-5:]:
            found = unsynced.at_risk(engine, start)
            behind = [each for each in frames if each.position >= start]
            assert found.from_position == start
            assert found.to_position == fmt.position(behind[-1].segment, behind[-1].end_offset)
            assert found.commits == sum(each.last for each in behind)
            assert found.frames.total() == len(behind)
            expected = []
            for name in sorted({name for at, name, _ in added if at >= start}):
                ids = [id for at, of, id in added if of == name and at >= start]
                expected.append(unsynced.Endangered(name, ids[0], ids[-1], len(ids)))
            assert found.streams == expected


def test_a_node_put_together_from_what_is_left() -> None:
    """Deletes are carried out only if all entries are there."""
    lp = codec().new_node(5, 0, [b"f", b"0"])
    for ms in range(6, 9):
        lp, _ = codec().append(lp, 5, 0, ms, 0, [b"f", b"1"])
    wanted = Wanted(1, StreamID(5, 0), 99, lp=lp, deleted={1, 3, 4, 9})
    marked = codec().mark_deleted(lp, [1, 3])
    assert wanted.as_sealed(2) == (marked, True)
    assert wanted.as_sealed(None) == (marked, False)
    assert wanted.as_sealed(3) == (lp, False)


def test_only_what_is_lost_behind_it_concerns_a_node() -> None:
    gaps = ReplayGuard(None, RecoveryReport())  # type: ignore[arg-type]
    assert not gaps
    gaps.passed(100, 200)
    assert gaps
    assert [gaps.cross(version) for version in (50, 99, 100, 101, 300)] == [
        True, True, False, False, False,
    ]  # fmt: skip


REPORTS: dict[str, Callable[[], dict[str, Any]]] = {
    "recovery": lambda: RecoveryReport().as_dict(),
    "check": lambda: CheckReport().as_dict(),
    "compaction": lambda: CompactionReport().as_dict(),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_nothing(name: str) -> None:
    """What was not counted is 0, what did not happen is false."""
    told = REPORTS[name]()
    assert told.pop("clean", True) is True
    assert told.pop("index", "not compared") == "not compared"
    assert not any(told.values()), told


def test_a_report_of_damage() -> None:
    damage = Damage(3, 4, 5, "why")
    report = CheckReport(damage=[damage])
    assert report.as_dict()["damage"] == [damage._asdict()]
    assert report.as_dict()["clean"] is False
    assert CheckReport(tail_bytes=1).as_dict()["clean"] is False
    gone = Gone(b"s", StreamID(1, 0), StreamID(2, 0), None, 3, 4, "why")
    report_of_open = RecoveryReport()
    report_of_open.torn_bytes, report_of_open.torn_position = 7, fmt.position(3, 70)
    report_of_open.damage, report_of_open.gone = [damage], [gone]
    report_of_open.saved_to, report_of_open.restated_segments = "there", 2
    recovery = report_of_open.as_dict()
    assert recovery["torn_at"] == {"segment": 3, "offset": 70}
    assert (recovery["saved_to"], recovery["restated_segments"]) == ("there", 2)
    assert recovery["damage"] == [damage._asdict()]
    assert recovery["gone"][0] == {
        "stream": "s", "first": "1-0", "last": "2-0", "entries": None, "segment": 3, "offset": 4,
        "why": "why",
    }  # fmt: skip
    assert Gone(b"", *gone[1:]).as_dict()["stream"] is None
