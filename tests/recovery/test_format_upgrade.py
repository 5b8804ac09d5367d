"""Prevents a store of an older format from being misread, half upgraded, or changed by readers."""

from __future__ import annotations

import json
import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

import logstore
from logstore import format as fmt
from logstore.engine.shm.commit_words import Wake
from logstore.errors import CorruptionError, FormatVersionError, StoreInUseError
from logstore.fs import LOCAL
from logstore.log import chain, checkpoint_file, file_names, hint, segment, storefile
from logstore.recovery import index_validity
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from tests.compaction.dumps import dump
from tests.crash.states import store_content
from tests.golden.store_v1.generate import CONTENT, STORE, content
from tests.golden.store_v2 import generate as store_v2
from tests.recovery.shipped import names_and_bytes
from tests.scan.scanned_stores import make_plan, split_rows
from tests.support.failing_files import PowerCut, PowerCutFileSystem
from tests.support.inside import FixedClock
from tests.support.watched_files import CHANGES, OperationLog, in_place

EXPECTED: dict[str, Any] = json.loads(CONTENT.read_text(encoding="utf-8"))
NEWER = fmt.FORMAT_VERSION + 1


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the store of format 1."""
    return Path(shutil.copytree(STORE, tmp_path / "old"))


def version_of(store: Path) -> int:
    return storefile.read(LOCAL, store).version


def set_version(path: Path, version: int, head_bytes: int, *, body_too: bool = False) -> None:
    """Another version in a head behind a magic of 8 bytes, with the CRC in its last 4 made good."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, version)
    crc = crc32c(bytes(data[: head_bytes - 4]))
    if body_too:
        crc = crc32c(bytes(data[head_bytes:]), crc)
    struct.pack_into("<I", data, head_bytes - 4, crc)
    path.write_bytes(data)


def test_the_golden_store_has_what_it_is_for(old: Path) -> None:
    """A canary: without these parts the tests below would test nothing."""
    assert version_of(old) == 1
    roles = {head.role for head, _ in chain.heads(LOCAL, old, bytes(range(16))).values()}
    assert roles == {fmt.Role.MAIN, fmt.Role.COMPACTED}
    assert len(chain.main_links(LOCAL, old, bytes(range(16)))) > 2
    assert len(list((old / "log").glob("*.hint"))) > 2
    assert file_names.checkpoints(LOCAL, old)
    assert sum(len(each["entries"]) for each in EXPECTED.values()) > 100


def test_opening_it_for_writing_upgrades_it(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = names_and_bytes(old)
    with caplog.at_level(logging.INFO, "logstore"), logstore.open(old) as store:
        assert content(store) == EXPECTED
        assert version_of(old) == fmt.FORMAT_VERSION == store.info().format_version
        assert store.recovery["rebuilt"]
        assert store.recovery["hints_used"]
        assert not store.recovery["segments_scanned"]
        assert not store.recovery["damage"]
    assert f"was of format 1 and is now of format {fmt.FORMAT_VERSION}" in caplog.text
    after = names_and_bytes(old)
    changed = {name for name, data in before.items() if after[name] != data}
    assert changed == {"STORE"}
    assert after["STORE"][10:] == before["STORE"][10:]  # the UUID and the limits, to the byte
    caplog.clear()
    with caplog.at_level(logging.INFO, "logstore"), logstore.open(old) as store:
        assert content(store) == EXPECTED
        assert store.recovery["index_trusted"]
    assert "is now of format" not in caplog.text


def test_an_upgraded_store_goes_on_working(old: Path) -> None:
    with logstore.open(old) as store:
        for number in range(300):
            store.stream("orders").add({"order": number, "pad": b"x" * 400})
        store.stream("sensors").trim(max_entries=3, approximate=False)
        store.checkpoint()
        store.compact(purge=True)
        expected = dump(store)
    shutil.rmtree(old / "index")
    with logstore.open(old) as store:
        assert dump(store) == expected
    assert check(old).as_dict()["clean"]


def test_a_checkpoint_of_version_1_is_used_and_not_needed(old: Path) -> None:
    with logstore.open(old, readonly=True) as store:
        assert content(store) == EXPECTED
    *_, newest = file_names.checkpoints(LOCAL, old)
    file_names.checkpoint(old, newest).unlink()
    with logstore.open(old, readonly=True) as store:
        assert content(store) == EXPECTED
    for path in (old / "log").glob("*.hint"):
        path.unlink()
    with logstore.open(old) as store:
        assert content(store) == EXPECTED
        assert store.recovery["segments_scanned"]


def test_reading_leaves_every_byte(old: Path) -> None:
    before = names_and_bytes(old)
    with logstore.open(old, readonly=True) as store:
        assert content(store) == EXPECTED
        assert store.info().format_version == 1
    report = check(old)
    assert report.as_dict()["clean"], report.damage
    assert report.checkpoints == 2
    assert report.streams == len(EXPECTED)
    assert report.entries == sum(len(each["entries"]) for each in EXPECTED.values())
    assert names_and_bytes(old) == before


def test_check_and_recover_after_the_upgrade(old: Path) -> None:
    assert not recover(old).damage
    assert version_of(old) == fmt.FORMAT_VERSION
    assert check(old).as_dict()["clean"]
    with logstore.open(old) as store:
        assert content(store) == EXPECTED


def test_scans_read_its_segments(old: Path) -> None:
    with logstore.open(old) as store:
        for name, each in EXPECTED.items():
            rows = split_rows(make_plan(store, name.encode("latin-1")))
            assert [str(row[0]) for row in rows] == [entry[0] for entry in each["entries"]]


def test_a_kill_or_power_cut_in_the_upgrade(old: Path, tmp_path: Path) -> None:
    """Cut at every operation of the opening: of one format or the other, and all of it there."""
    seen: list[int] = []
    for at in range(1, 100):
        path = Path(shutil.copytree(old, tmp_path / f"cut-{at}"))
        files = PowerCutFileSystem(path, at)
        for folder in (path, path / "log", path / "checkpoint"):
            for file in folder.iterdir():
                files.synced(file) if file.is_file() else None
            files.directory_synced(folder)
        try:
            with in_place(files):
                logstore.open(path, background=False).close()
        except PowerCut:
            pass
        clone = tmp_path / f"clone-{at}"
        files.clone(clone)
        files.close()
        for left in (path, clone):
            seen.append(version_of(left))
            assert content(logstore.open(left, readonly=True)) == EXPECTED
            with logstore.open(left) as store:
                assert content(store) == EXPECTED
            assert version_of(left) == fmt.FORMAT_VERSION
        if not files.over:
            break
    assert not files.over
    assert set(seen) == {1, fmt.FORMAT_VERSION}


def test_a_temporary_that_was_not_renamed_is_nothing(old: Path) -> None:
    marker = (old / "STORE").read_bytes()
    (old / "STORE.tmp").write_bytes(marker[:7])
    with logstore.open(old, readonly=True) as store:
        assert store.info().format_version == 1
    with logstore.open(old) as store:
        assert content(store) == EXPECTED
    assert version_of(old) == fmt.FORMAT_VERSION
    assert not (old / "STORE.tmp").exists()


def test_nothing_is_written_before_the_version(old: Path) -> None:
    """Whatever the new format puts into the store must be behind the marker."""

    with in_place(OperationLog()) as files:
        logstore.open(old, background=False).close()
    order = [
        (kind, path.name)
        for kind, path, *_ in files.of(*CHANGES)
        if path.is_relative_to(old) and path.name not in {"LOCK", "USERS"}
    ]
    temporary = "STORE.tmp"
    assert order[:6] == [
        ("remove", temporary), ("create", temporary), ("write", temporary), ("sync", temporary),
        ("rename", "STORE"), ("sync_directory", old.name),
    ]  # fmt: skip


def test_the_upgrade_waits_for_an_older_logstore_to_close(old: Path) -> None:
    """That one would meet frames it refuses, and write checkpoints without what it ignores."""
    users = LOCAL.open(old / file_names.USERS, write=True, create=True)
    assert users.try_lock(exclusive=False)
    before = names_and_bytes(old)
    with pytest.raises(StoreInUseError, match="close it there"):
        logstore.open(old)
    assert version_of(old) == 1
    after = names_and_bytes(old)
    assert {name: after[name] for name in before} == before
    users.close()
    with logstore.open(old) as store:
        assert content(store) == EXPECTED


def test_an_index_of_the_older_format_is_not_trusted(old: Path) -> None:
    with logstore.open(old):
        pass
    known = index_validity.read_marker(LOCAL, old)
    assert known is not None
    assert known.version == fmt.FORMAT_VERSION
    index_validity.write_marker(LOCAL, old, known._replace(version=1))
    with logstore.open(old) as store:
        assert store.recovery["why_not_trusted"] == "it was built for format 1"
        assert content(store) == EXPECTED


# -- the format before -----------------------------------------------------------------------------
@pytest.fixture
def second(tmp_path: Path) -> Path:
    """A copy of the store of format 2."""
    return Path(shutil.copytree(store_v2.STORE, tmp_path / "second"))


def everything(path: Path, *, readonly: bool = False) -> store_content.Content:
    """What a store tells of itself; format 2 knew no schemas."""
    clock = FixedClock()
    with logstore.open(path, readonly=readonly, background=False, clock=clock) as store:
        found = store_content.content(store, clock)
    assert {each.pop("schema") for each in found.values()} == {None}
    return found


def test_a_store_of_format_2_is_read_as_it_is(second: Path) -> None:
    expected, before = store_v2.expected(), names_and_bytes(second)
    assert version_of(second) == 2
    assert expected["orders"]["scheduled"]
    assert expected["orders"]["groups"]["billing"]["pending"]
    assert everything(second, readonly=True) == expected
    assert check(second).as_dict()["clean"]
    assert names_and_bytes(second) == before


@pytest.mark.parametrize("derived", ["all", "no checkpoint", "no hint"])
def test_a_store_of_format_2_becomes_one_of_today(second: Path, derived: str) -> None:
    if derived == "no checkpoint":
        shutil.rmtree(second / "checkpoint")
    for path in (second / "log").glob("*.hint" if derived == "no hint" else "none"):
        path.unlink()
    assert everything(second) == store_v2.expected()
    assert version_of(second) == fmt.FORMAT_VERSION
    assert everything(second) == store_v2.expected()
    with logstore.open(second, background=False, clock=FixedClock()) as store:
        store.stream("orders").configure(schema="order string?, *")
        store.checkpoint()
    shutil.rmtree(second / "index")
    with logstore.open(second, background=False, clock=FixedClock()) as store:
        assert str(store.stream("orders").schema) == "order string?, *"
    assert check(second).as_dict()["clean"]


# -- heads of a newer version, or of none ---------------------------------------------------------
@pytest.mark.parametrize(("version", "error"), [(NEWER, FormatVersionError), (0, CorruptionError)])
def test_a_marker_of_another_version(old: Path, version: int, error: type[Exception]) -> None:
    data = bytearray((old / "STORE").read_bytes())
    struct.pack_into("<H", data, 8, version)
    (old / "STORE").write_bytes(data)
    before = names_and_bytes(old)
    doings: list[Callable[[], object]] = [
        lambda: logstore.open(old), lambda: logstore.open(old, readonly=True), lambda: check(old),
    ]  # fmt: skip
    for doing in doings:
        with pytest.raises(error, match=f"format {version}"):
            doing()
    left = names_and_bytes(old)
    assert {name: left[name] for name in before} == before


@pytest.mark.parametrize(("version", "error"), [(NEWER, FormatVersionError), (0, CorruptionError)])
def test_a_segment_of_another_version(old: Path, version: int, error: type[Exception]) -> None:
    path = file_names.segment(old, 6)
    set_version(path, version, fmt.SEGMENT_HEAD_BYTES)
    file = LOCAL.open(path)
    with pytest.raises(error, match=f"format {version}"):
        segment.read_head(file, 6, bytes(range(16)))
    file.close()
    for readonly in (False, True):
        with pytest.raises(error, match=f"format {version}"):
            logstore.open(old, readonly=readonly)


def test_a_hint_of_a_newer_version_is_as_good_as_none(old: Path) -> None:
    (link,) = [one for one in chain.main_links(LOCAL, old, bytes(range(16))) if one.number == 6]
    assert hint.read(LOCAL, old, bytes(range(16)), link) is not None
    set_version(file_names.hint(old, 6), NEWER, fmt.HINT_HEAD.size, body_too=True)
    assert hint.read(LOCAL, old, bytes(range(16)), link) is None
    assert [each.why for each in check(old).damage] == [
        "the hint does not fit its segment: remove the .hint file, it is made anew"
    ]
    with logstore.open(old) as store:
        assert content(store) == EXPECTED
        assert store.recovery["segments_scanned"] == 1


def test_a_checkpoint_of_a_newer_version_is_refused(old: Path) -> None:
    """To pass it over would lose what only a newer logstore understands."""
    *_, newest = file_names.checkpoints(LOCAL, old)
    set_version(file_names.checkpoint(old, newest), NEWER, fmt.CHECKPOINT_HEAD.size)
    with pytest.raises(FormatVersionError, match="upgrade logstore"):
        checkpoint_file.read(LOCAL, old, bytes(range(16)), newest)
    with pytest.raises(FormatVersionError, match=f"format {NEWER}"):
        logstore.open(old)


def test_a_failed_sync_outlives_the_upgrade(tmp_path: Path) -> None:
    """Prevents: a word in WAKE that an older version left and a newer one does not look for, so
    that what may never have reached the disk is taken for durable."""
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store.stream("s").add({"a": 1})
        engine = store._engine()
        engine.wake.failed_at = 1
        assert Wake.last_failure(LOCAL, path / file_names.WAKE) == 1
    wake = bytearray((path / file_names.WAKE).read_bytes()[: 64 * 1024])
    wake[7] = 1
    (path / file_names.WAKE).write_bytes(wake)
    assert Wake.last_failure(LOCAL, path / file_names.WAKE) == 1
    segment_one = file_names.segment(path, 1)
    before = segment_one.stat().st_ino
    with logstore.open(path) as store:
        assert segment_one.stat().st_ino != before  # written anew
        assert len(store.stream("s")) == 1
