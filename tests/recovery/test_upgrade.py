"""Prevents an upgrade that leaves no way back, a way back that loses entries, and logstores of
two versions in one store at the same time.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.errors import (
    DamagedStoreError,
    FormatVersionError,
    OptionError,
    StoreError,
    StoreInUseError,
)
from logstore.fs import LOCAL
from logstore.log import file_names, storefile
from logstore.recovery import format_upgrade
from logstore.recovery.check import check
from tests.crash.states import store_content
from tests.golden.store_v2 import generate as store_v2
from tests.golden.store_v3 import generate as store_v3
from tests.house.repo import ROOT
from tests.recovery.shipped import names_and_bytes
from tests.support.failing_files import PowerCut, PowerCutFileSystem
from tests.support.inside import FixedClock
from tests.support.processes import run_program
from tests.support.watched_files import FileOperation
from tests.tools.commands import invoke, ok

OLDER = range(fmt.OLDEST_VERSION, fmt.FORMAT_VERSION)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the store of format 2."""
    return Path(shutil.copytree(store_v2.STORE, tmp_path / "here" / "store"))


def version_of(store: Path) -> int:
    return storefile.read(LOCAL, store).version


def everything(path: Path, *, readonly: bool = True) -> store_content.Content:
    clock = FixedClock()
    with logstore.open(path, readonly=readonly, background=False, clock=clock) as store:
        return store_content.content(store, clock)


def held(path: Path) -> store_content.Content:
    """What it holds; format 2 knew no schemas."""
    found = everything(path)
    return {
        name: {key: value for key, value in each.items() if key != "schema"}
        for name, each in found.items()
    }


# -- golden stores ---------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [*OLDER, fmt.FORMAT_VERSION])
def test_each_format_has_its_golden_store(version: int) -> None:
    """A new format comes with a store that the last code of it wrote."""
    assert version_of(ROOT / "tests" / "golden" / f"store_v{version}" / "store") == version


@pytest.mark.parametrize("derived", ["all", "an older checkpoint", "no hint"])
def test_the_golden_store_of_format_3_is_read(tmp_path: Path, derived: str) -> None:
    path = Path(shutil.copytree(store_v3.STORE, tmp_path / "third"))
    if derived == "an older checkpoint":  # compaction has dropped what is before it
        max((path / "checkpoint").iterdir()).unlink()
    for each in (path / "log").glob("*.hint" if derived == "no hint" else "none"):
        each.unlink()
    expected, before = store_v3.expected(), names_and_bytes(path)
    assert expected["typed"]["schema"] is not None
    assert expected["orders"]["groups"]["billing"]["pending"]
    assert everything(path) == expected
    assert check(path).as_dict()["clean"]
    assert names_and_bytes(path) == before
    assert everything(path, readonly=False) == expected


# -- upgrade, and back -----------------------------------------------------------------------------
@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_keeps_the_store_as_it_was(tmp_path: Path, version: int) -> None:
    golden = ROOT / "tests" / "golden" / f"store_v{version}" / "store"
    path = Path(shutil.copytree(golden, tmp_path / "store"))
    before, content = names_and_bytes(path), everything(path)
    done = format_upgrade.upgrade(path)
    kept = tmp_path / f"store.format-{version}"
    assert done == (version, fmt.FORMAT_VERSION, kept, len(content), done.entries)
    assert done.entries == check(path).entries
    assert names_and_bytes(kept) == before
    assert version_of(path) == fmt.FORMAT_VERSION
    assert everything(path) == everything(kept) == content
    again = names_and_bytes(path)
    assert format_upgrade.upgrade(path) == (fmt.FORMAT_VERSION, fmt.FORMAT_VERSION, None, 0, 0)
    assert names_and_bytes(path) == again


def test_a_way_back_keeps_what_was_added_since(old: Path) -> None:
    before = held(old)
    done = format_upgrade.upgrade(old)
    with logstore.open(old, background=False) as store:
        store.stream("orders").add({"order": "since"})
    left = format_upgrade.back_out(old)
    assert left == (
        fmt.FORMAT_VERSION, 2, old.with_name(f"store.format-{fmt.FORMAT_VERSION}"),
        done.entries, done.entries + 1,
    )  # fmt: skip
    assert version_of(old) == 2
    assert held(old) == before
    with logstore.open(left.aside, readonly=True) as store:
        assert next(iter(store.stream("orders").range(reverse=True, count=1)))["order"] == b"since"
    assert version_of(old.with_name("store.format-2")) == 2  # and the backup is there still


def test_the_commands_say_what_they_did(old: Path) -> None:
    kept = old.with_name("kept")
    assert '"was_format": 2' in ok("upgrade", old, "--backup", kept, "--json")
    assert "nothing to do" in ok("upgrade", old)
    done = invoke("upgrade", old, "--back-out")
    assert done.exit_code == 1
    assert "say where it is" in done.stderr
    told = ok("upgrade", old, "--back-out", "--backup", kept)
    assert f"store.format-{fmt.FORMAT_VERSION}" in told


def test_an_upgrade_refuses_before_anything_changes(old: Path) -> None:
    before = names_and_bytes(old)

    def refused(error: type[Exception], match: str, backup: Path | None = None) -> None:
        with pytest.raises(error, match=match):
            format_upgrade.upgrade(old, backup)
        after = names_and_bytes(old)
        assert {name: after[name] for name in before} == before

    refused(OptionError, "in the store itself", old / "log" / "kept")
    full = old.with_name("full")
    full.mkdir()
    (full / "mine").touch()
    refused(OptionError, "not empty", full)
    users = LOCAL.open(old / file_names.USERS, write=True, create=True)
    assert users.try_lock(exclusive=False)
    refused(StoreInUseError, "close it there first")
    users.close()
    for segment, match in zip(
        sorted((old / "log").glob("*.log"))[::2], ("nothing was changed", "no commit"), strict=True
    ):
        whole = segment.read_bytes()
        segment.write_bytes(whole[:100] + b"x" + whole[101:])
        before = names_and_bytes(old)
        refused(DamagedStoreError, match)
        segment.write_bytes(whole)
    assert not old.with_name("store.format-2").exists()


def test_a_way_back_refuses_before_anything_changes(old: Path, tmp_path: Path) -> None:
    format_upgrade.upgrade(old)
    kept = old.with_name("store.format-2")
    aside = old.with_name(f"store.format-{fmt.FORMAT_VERSION}")
    other = Path(shutil.copytree(kept, tmp_path / "other"))
    content = storefile.read(LOCAL, other)
    (other / "STORE").write_bytes(storefile.pack(content._replace(uuid=b"x" * 16)))
    before = names_and_bytes(kept)
    for given, match in ((other, "give its backup"), (old, "give its backup")):
        with pytest.raises(OptionError, match=match):
            format_upgrade.back_out(old, given)
    aside.mkdir()
    with pytest.raises(OptionError, match="in the way"):
        format_upgrade.back_out(old)
    aside.rmdir()
    with logstore.open(old), pytest.raises(StoreInUseError, match="close it there"):
        format_upgrade.back_out(old)
    segment = min((kept / "log").glob("*.log"))
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + b"x" + data[101:])
    with pytest.raises(DamagedStoreError, match="the backup is damaged"):
        format_upgrade.back_out(old)
    segment.write_bytes(data)
    assert names_and_bytes(kept) == before
    assert not aside.exists()
    format_upgrade.back_out(old)


class Stopping(PowerCutFileSystem):
    """Stops at the k-th change, and knows which changes give a name."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root, at)
        self.renames: list[int] = []

    def before(self, operation: FileOperation) -> None:
        super().before(operation)
        if operation.kind == "rename":
            self.renames.append(self.changes)


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "back-out"])
def test_a_kill_at_any_step_leaves_a_store_and_a_way_on(
    old: Path, tmp_path: Path, back: bool
) -> None:
    """Stopped before each change of a file, as a kill does it: nothing is taken back."""
    if back:
        format_upgrade.upgrade(old)
    before, seen = held(old), set()

    def stopped(at: int) -> tuple[Path, Stopping]:
        here = Path(shutil.copytree(old.parent, tmp_path / f"cut-{at}"))
        files = Stopping(here, at)
        with suppress(PowerCut):
            (format_upgrade.back_out if back else format_upgrade.upgrade)(here / "store", fs=files)
        files.close()
        return here / "store", files

    _, whole = stopped(0)
    for at in sorted({*range(1, whole.changes, 4), *whole.renames}):
        path, _ = stopped(at)
        if back:
            seen.add(path.exists())
            if path.exists():  # what was copied so far is in the way, and is named
                shutil.rmtree(path.with_name("store" + format_upgrade.COMING), ignore_errors=True)
            if not path.exists() or version_of(path) == fmt.FORMAT_VERSION:
                format_upgrade.back_out(path)
            assert version_of(path) == 2
        else:
            seen.add(version_of(path))
            assert held(path) == before
            format_upgrade.upgrade(path, path.with_name("another"))
            assert version_of(path) == fmt.FORMAT_VERSION
        assert held(path) == before
        shutil.rmtree(path.parent)
    assert seen == ({True, False} if back else {2, fmt.FORMAT_VERSION})


# -- two versions at the same time -----------------------------------------------------------------
def bytes_of(path: Path) -> dict[str, bytes]:
    """All of a store that is open but WAKE, in whose memory stands who has LOCK just now."""
    return {name: data for name, data in names_and_bytes(path).items() if name != "WAKE"}


def other_version(version: int, path: Path, work: str = "") -> str:
    """A process whose logstore writes another format opens the store; the error it gets, or what
    ``work`` prints."""
    return run_program(
        f"""
from logstore import format as fmt
fmt.FORMAT_VERSION = {version}
import logstore
from logstore.log import storefile
storefile.StoreFile.__new__.__defaults__ = (fmt.FORMAT_VERSION,)
try:
    with logstore.open({str(path)!r}, background=False) as store:
        store.stream("s").add({{"from": "{version}"}})
        {work or "pass"}
    print("added")
except logstore.Error as error:
    print(type(error).__name__, error)
"""
    ).stdout.strip()


def test_an_older_process_is_refused_beside_a_newer_one(tmp_path: Path) -> None:
    """By STORE, before it writes a byte; and so it is when the newer one is gone."""
    path = tmp_path / "s"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"a": 1})
        before = bytes_of(path)
        told = other_version(fmt.FORMAT_VERSION - 1, path)
        assert told.startswith("FormatVersionError"), told
        assert f"is of format {fmt.FORMAT_VERSION}" in told
        assert bytes_of(path) == before
        store.stream("s").add({"a": 2})
    before = bytes_of(path)
    assert other_version(fmt.FORMAT_VERSION - 1, path).startswith("FormatVersionError")
    assert bytes_of(path) == before


def test_a_newer_process_waits_for_the_older_one_to_close(tmp_path: Path) -> None:
    path, newer = tmp_path / "s", fmt.FORMAT_VERSION + 1
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"a": 1})
        before = bytes_of(path)
        told = other_version(newer, path)
        assert told.startswith("StoreInUseError"), told
        assert "close it there" in told
        assert bytes_of(path) == before
        store.stream("s").add({"a": 2})
    assert other_version(newer, path) == "added"
    before = bytes_of(path)
    for readonly in (False, True):
        with pytest.raises(FormatVersionError, match=f"is of format {newer}.*upgrade logstore"):
            logstore.open(path, readonly=readonly)
    with pytest.raises(FormatVersionError, match=f"is of format {newer}"):
        format_upgrade.upgrade(path)
    assert bytes_of(path) == before


def test_a_process_with_other_shared_words_is_refused(tmp_path: Path) -> None:
    """Two versions of one format may share memory in different ways: whoever comes second is
    refused before it writes."""
    path = tmp_path / "s"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"a": 1})
        before = bytes_of(path)
        told = run_program(
            f"""
import logstore
from logstore.engine.shm import commit_words
commit_words.MAGIC = commit_words.MAGIC[:-1] + bytes([commit_words.MAGIC[-1] + 1])
try:
    logstore.open({str(path)!r}, background=False).stream("s").add({{"b": 1}})
except logstore.Error as error:
    print(type(error).__name__, error)
"""
        ).stdout
        assert told.startswith(StoreError.__name__), told
        assert "not a wake file of this version" in told
        assert bytes_of(path) == before
        store.stream("s").add({"a": 2})
