"""Prevents an index from being believed that was closed otherwise, or damaged since, and a broken
BOOT or leftovers of a crash from keeping a store closed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.fs import LOCAL
from logstore.index.env import open_generation
from logstore.index.txn import IndexTxn
from logstore.log import names, segment
from logstore.options import StoreOptions
from logstore.recovery import compare, index_validity, readonly, rebuild
from logstore.recovery.check import check
from logstore.recovery.index_validity import ShutdownMarker
from logstore.recovery.report import Damage
from logstore.recovery.salvage.run import salvage
from tests.recovery import little

X, Y = [1, 4, 5, 6, 7, 8, 10], list(range(1, 11))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was closed cleanly."""
    little.make(tmp_path / "store")
    return tmp_path / "store"


def _index(path: Path) -> Path:
    return names.generation(path, names.generations(LOCAL, path)[-1])


def _changed(path: Path, change: Callable[[IndexTxn], object]) -> None:
    """Change rows of the index, and make BOOT fit its file again."""
    place = _index(path)
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    own = open_generation(LOCAL, place, known.generation)
    with own.env.begin(write=True) as txn:
        change(IndexTxn(own, txn))
    own.sync()
    own.close()
    file = LOCAL.stat(place / "data.mdb")
    index_validity.write_marker(LOCAL, path, known._replace(
        identity=index_validity.identity(place / "data.mdb"), clean_bytes=file.size_bytes,
        clean_modified_ns=file.modified_ns,
    ))  # fmt: skip


def _record(index: IndexTxn) -> None:
    """A row whose checksum does not fit."""
    with index.txn.cursor(db=index.generation.main) as cursor:
        for key, value in cursor:
            if len(value) > 60:
                index.txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=index.generation.main)
                return


def _meta(**values: int) -> Callable[[IndexTxn], object]:
    return lambda index: index.put_meta(index.meta()._replace(**values))


def _seen(path: Path, *, careful: bool = False) -> tuple[str, list[Damage]]:
    """What a check says of the index, in this process or in another one."""
    engine, _ = readonly.open_engine(LOCAL, path, StoreOptions(readonly=True, background=False))
    try:
        damage: list[Damage] = []
        return compare.with_own_index(engine, damage, careful=careful), damage
    finally:
        readonly.close_engine(engine)


def test_a_row_that_is_not_right_is_told(path: Path) -> None:
    assert _seen(path) == (compare.AGREES, [])
    _changed(path, lambda index: None)
    assert _seen(path) == (compare.AGREES, [])
    _changed(path, _record)
    told, damage = _seen(path)
    assert told == "differs from the log"
    assert [each[:3] for each in damage] == [(0, 0, 0)]
    assert "the index is damaged at key" in damage[0].why


def test_whether_an_index_can_be_read_is_asked_of_another_process(path: Path) -> None:
    place = _index(path)
    number = int(place.name)
    assert compare.cannot_be_read(place, number) == ""
    _changed(path, lambda index: index.delete_name(b"x", 1))
    assert "the name b'x' is missing" in compare.cannot_be_read(place, number)
    _changed(path, _record)
    assert "the index is damaged at key" in compare.cannot_be_read(place, number)
    told, (damage,) = _seen(path, careful=True)
    assert told == "differs from the log"
    assert damage[:3] == (0, 0, 0)
    assert damage.why.startswith("index: the index is damaged at key")


def test_an_index_that_cannot_be_opened_is_told(path: Path) -> None:
    place = _index(path) / "data.mdb"
    size, times = place.stat().st_size, place.stat()
    with place.open("r+b") as file:
        file.write(bytes(8192))
    assert place.stat().st_size == size
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert times.st_ino == known.identity.inode
    now = LOCAL.stat(place)
    index_validity.write_marker(LOCAL, path, known._replace(clean_modified_ns=now.modified_ns))
    told, damage = _seen(path)
    assert told in ("cannot be opened", "differs from the log")
    assert [each[:3] for each in damage] == [(0, 0, 0)]


@pytest.mark.parametrize("values", [{"applied": 1 << 32 | 900}, {"commit": 3}, {"last_crc": 77}])
def test_an_index_that_is_not_as_it_was_closed_is_not_used(
    values: dict[str, int], path: Path, tmp_path: Path
) -> None:
    _changed(path, _meta(**values))
    copied = shutil.copytree(path, tmp_path / "copy")
    assert salvage(path, tmp_path / "new").index == "built from what the log still says"
    assert little.held(tmp_path / "new") == {b"x": X, b"y": Y}
    with logstore.open(path, background=False) as store:
        assert store.recovery["rebuilt"]
        assert "not as it was when it was closed" in str(store.recovery["why_not_trusted"])
    assert little.held(path) == {b"x": X, b"y": Y}
    assert little.held(copied) == {b"x": X, b"y": Y}


def test_boot_is_whole_or_none(path: Path) -> None:
    place = path / names.BOOT
    whole = place.read_bytes()
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert not index_validity.marker_is_damaged(LOCAL, path)
    for data in (
        b"", b"\0", bytes(3), bytes(5), bytes(100), whole[:4], whole[:-1], whole + b"\0",
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))),
    ):  # fmt: skip
        place.write_bytes(data)
        assert index_validity.read_marker(LOCAL, path) is None
        assert index_validity.marker_is_damaged(LOCAL, path)
    place.write_bytes(bytes(5))
    why = "BOOT is damaged: the index is rebuilt when the store is opened"
    assert check(path).damage == [Damage(0, 0, 0, why)]
    place.unlink()
    assert index_validity.read_marker(LOCAL, path) is None
    assert not index_validity.marker_is_damaged(LOCAL, path)
    place.write_bytes(whole)
    assert index_validity.read_marker(LOCAL, path) == known


def test_zeros_are_no_boot(path: Path) -> None:
    """Four of them are the checksum of nothing."""
    (path / names.BOOT).write_bytes(bytes(4))
    assert index_validity.read_marker(LOCAL, path) is None
    assert index_validity.marker_is_damaged(LOCAL, path)
    assert little.held(path) == {b"x": X, b"y": Y}


def test_what_boot_says_comes_back(path: Path) -> None:
    here = index_validity.Identity("boot", 2, 3, 4, 5)
    for known in (
        ShutdownMarker(7, here, 8, 9, 10, 11, 12, 13),
        index_validity.dirty_marker(7, here, 13),
        index_validity.invalid_marker(13),
    ):
        index_validity.write_marker(LOCAL, path, known)
        assert index_validity.read_marker(LOCAL, path) == known
    assert index_validity.dirty_marker(7, here, 13) == ShutdownMarker(7, here, 0, 0, 0, 0, 0, 13)
    assert index_validity.invalid_marker(13).generation == 0
    assert not index_validity.invalid_marker(13).identity.known
    assert here.known
    for name, nothing in (("boot_id", ""), ("mount_id", 0), ("inode", 0), ("born_ns", 0)):
        assert not here._replace(**{name: nothing}).known  # type: ignore[arg-type]


def test_why_an_index_is_not_trusted() -> None:
    here = index_validity.Identity("boot", 2, 3, 4, 5)
    file = index_validity.FileStat(3, 4, 11, 12)
    clean, open_boot = (
        ShutdownMarker(7, here, 8, 9, 10, 11, 12, 13),
        ShutdownMarker(7, here, 0, 0, 0),
    )
    why = index_validity.why_invalid
    assert why(clean, here, file) == ""
    assert why(clean, here._replace(boot_id="other", mount_id=99, born_ns=1), file) == ""
    assert why(open_boot, here, file) == ""
    for known, now, size in (
        (None, here, file), (clean._replace(version=0), here, file), (clean, None, file),
        (clean, here._replace(device=9), file), (clean, here._replace(inode=9), file),
        (clean, here, None), (clean, here, file._replace(size_bytes=9)),
        (clean, here, file._replace(modified_ns=9)), (open_boot, here._replace(boot_id=""), file),
        (open_boot, here._replace(boot_id="other"), file),
        (open_boot, here._replace(mount_id=9), file), (open_boot, here._replace(device=9), file),
        (open_boot, here._replace(inode=9), file), (open_boot, here._replace(born_ns=9), file),
    ):  # fmt: skip
        assert why(known, now, size)


def test_a_log_that_does_not_reach_so_far_is_damaged(path: Path) -> None:
    """With the place where it ends; not if it went on later, or if loss is accepted."""
    with logstore.open(path, background=False) as store:
        engine = store._engine()
        size = names.segment(path, 1).stat().st_size
        index_validity.check_log_reaches(engine, 1 << 32 | size)
        for position, place in ((1 << 32 | size + 1, (1, size)), (5 << 32 | 100, (5, 0))):
            with pytest.raises(logstore.DamagedStoreError) as caught:
                index_validity.check_log_reaches(engine, position)
            assert (caught.value.segment, caught.value.offset) == place
        head = segment.SegmentHead(fmt.Role.MAIN, 7, engine.uuid, 6 << 32 | 64, 1, 0)
        segment.create(LOCAL, path, head).close()
        index_validity.check_log_reaches(engine, 5 << 32 | 100)
        names.segment(path, 7).unlink()
        engine.accept_loss = True
        index_validity.check_log_reaches(engine, 5 << 32 | 100)
        engine.accept_loss = False


def test_what_a_crash_left_of_a_copy_is_in_nobodys_way(path: Path) -> None:
    with logstore.open(path, background=False) as store:
        engine = store._engine()
        number = engine.index().number
        half = names.generation(path, number + 1)
        half = half.with_name(half.name + names.TEMPORARY)
        half.mkdir()
        shutil.copy(_index(path) / "data.mdb", half / "data.mdb")
        (half / "more").write_bytes(b"x")
        with engine._locked():
            assert rebuild.copy_used(engine) == number + 1
            known = index_validity.read_marker(LOCAL, path)
            assert known is not None
            made = names.generation(path, number + 1)
            assert known == index_validity.dirty_marker(
                number + 1, index_validity.identity(made / "data.mdb"), engine.promised
            )
            assert sorted(each.name for each in made.iterdir()) == ["data.mdb"]
            assert not half.exists()
            (names.generation(path, number + 5)).mkdir()
            assert rebuild.copy_used(engine) == number + 6
            engine.rebuild_locked(rebuild.copy_used)
    assert little.held(path) == {b"x": X, b"y": Y}
