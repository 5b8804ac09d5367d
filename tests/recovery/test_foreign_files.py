"""Prevents the store from writing to, removing, or waiting for files that are not its own: symbolic
links, FIFOs and foreign names in its directory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests.support.processes import run_program

SECRET = b"not of the store"
OPEN_S = 60
USE = """
import sys, logstore
from logstore.recovery.check import check
try:
    with logstore.open(sys.argv[1], segment_bytes=64 << 10) as store:
        store.stream("s").add({"a": "b"})
        print("opened", len(list(store.stream("s"))))
except logstore.Error as exc:
    print(type(exc).__name__, exc)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of some segments, closed."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 << 10) as store:
        for n in range(20):
            store.stream("s").add({"n": n, "pad": "x" * 10_000})
        store.checkpoint()
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A directory with files of somebody else."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for name in ("letter", "0" * 20, "f" * 32, "1.tmp"):
        (folder / name).write_bytes(SECRET)
    return folder


def untouched(folder: Path) -> bool:
    """Whether all of somebody else's files are as they were."""
    return [each.read_bytes() for each in sorted(folder.iterdir())] == [SECRET] * 4


def use(path: Path) -> str:
    """Open and add in a process of its own, which must not hang."""
    return run_program(USE, path, timeout=OPEN_S).stdout.strip()


TEMPORARIES = (
    "WAKE.tmp", "BOOT.tmp", "RESERVE.tmp", "STORE.tmp", f"log/{5:020d}.log.tmp",
    f"log/{4:020d}.hint.tmp", "index/2.tmp",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "file"])
def test_temporary_names_are_made_anew(path: Path, foreign: Path, kind: str) -> None:
    """What a dead process, or somebody else, left under them is unlinked, never written to."""
    shutil.rmtree(path / "index")  # it is rebuilt: all of them are made
    (path / "RESERVE").unlink()
    (path / "index").mkdir()
    for name in TEMPORARIES:
        if kind == "fifo":
            os.mkfifo(path / name)
        elif kind == "file":
            (path / name).write_bytes(bytes(3 << 20))
        else:
            (path / name).symlink_to(foreign / ("letter" if kind == "link" else "none"))
    with logstore.open(path) as store:
        stream = store.stream("s")
        for n in range(20):
            stream.add({"n": n, "pad": "x" * 10_000})
        assert len(stream) == 40
        store.checkpoint()
    assert untouched(foreign)
    assert check(path).damage == []
    left = [name for name in TEMPORARIES if os.path.lexists(path / name)]
    assert left in ([], ["STORE.tmp"])  # which is written to by a change of format only


@pytest.mark.parametrize("name", [
    "BOOT", "WAKE", "STORE", "LOCK", "USERS", "RESERVE", f"log/{1:020d}.log", f"log/{1:020d}.hint",
    "checkpoint",
])  # fmt: skip
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_no_odd_file_is_opened(path: Path, tmp_path: Path, name: str, kind: str) -> None:
    """Nor waited for: the file is named, or is not needed; no link is followed."""
    if name == "checkpoint":
        name = str(next((path / name).iterdir()).relative_to(path))
    aside = tmp_path / "aside"
    shutil.move(path / name, aside)
    if kind == "fifo":
        os.mkfifo(path / name)
    else:
        (path / name).symlink_to(aside)
    before = aside.read_bytes()
    said = use(path)
    if name in ("WAKE", "RESERVE") or "hint" in name or "ckpt" in name:
        assert said == "opened 21"
    else:
        assert said.startswith("FileSystemError")
        assert str(path / name) in said
        assert ("symbolic link" if kind == "link" else "FIFO") in said
    assert aside.read_bytes() == before


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_an_odd_index_is_built_anew(path: Path, tmp_path: Path, name: str, kind: str) -> None:
    """LMDB would follow the link, and write where it leads."""
    file = next((path / "index").iterdir()) / name
    aside = tmp_path / "aside"
    shutil.move(file, aside)
    before = aside.read_bytes()
    os.mkfifo(file) if kind == "fifo" else file.symlink_to(aside)
    assert use(path) == "opened 21"
    assert aside.read_bytes() == before


@pytest.mark.parametrize("folder", ["log", "pins", "index", "checkpoint", "quarantine"])
def test_no_folder_may_be_a_link(path: Path, foreign: Path, folder: str) -> None:
    if (path / folder).exists():
        shutil.rmtree(path / folder)
    (path / folder).symlink_to(foreign)
    for readonly in (False, True):
        with pytest.raises(logstore.FileSystemError, match=f"{folder} is a symbolic link"):
            logstore.open(path, readonly=readonly, create=False)
    assert untouched(foreign)


def test_a_folder_that_becomes_a_link_is_not_emptied(path: Path, foreign: Path) -> None:
    """Also while the store is open, and by an erasure, which removes every pin."""
    with logstore.open(path) as store:
        shutil.rmtree(path / "pins")
        (path / "pins").symlink_to(foreign)
        with pytest.raises(logstore.FileSystemError, match="pins is a symbolic link"):
            store.compact(purge=True)
        (path / "pins").unlink()
        store.compact(purge=True)
    assert untouched(foreign)


def test_only_own_names_are_removed(path: Path, foreign: Path) -> None:
    """From every folder, by all that tidies up."""
    strange = ("notes.txt", "old.tmp", "7.log", "7.hint", "²", f"{9:020d}.hint.bak", "x.ckpt.tmp")
    for folder in ("log", "pins", "index", "checkpoint"):
        for name in strange:
            (path / folder / name).write_bytes(SECRET)
    (path / "index" / "5.tmp").symlink_to(foreign)
    (path / "index" / "6").symlink_to(foreign)
    (path / "BOOT").unlink()  # the index is rebuilt
    with logstore.open(path) as store:
        assert store.recovery["rebuilt"]
        stream = store.stream("s")
        stream.delete(*[entry.id for entry in stream.range(count=15)], purge=True)
        store.compact(purge=True)
        store.checkpoint()
        assert len(stream) == 5
    assert check(path).damage == []
    for folder in ("log", "pins", "index", "checkpoint"):
        assert {name for name in strange if (path / folder / name).read_bytes() == SECRET} == {
            *strange
        }
    assert not os.path.lexists(path / "index" / "5.tmp")
    assert not os.path.lexists(path / "index" / "6")
    assert untouched(foreign)


def test_the_path_of_a_store_may_be_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with logstore.open(link) as store, logstore.open(path) as same:
        assert store._live() is same._live()
        assert store.stream("s").add({"a": 1})
        assert store.info().path in (str(link), str(path))
    assert check(link).damage == []
    with logstore.open(link, readonly=True) as store:
        assert len(store.stream("s")) == 21
