"""Prevents an index from being trusted whose mount is not the one it was written on.

The boot is the same, device and inode, too: only the mount tells. What stands in the index is made
junk meanwhile, from outside and with its times kept, so that a test ends badly if it is opened.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from logstore.fs import LOCAL
from logstore.log import file_names
from tests.power import children
from tests.power.conftest import MakeDisk

FIRST, LAST, TODAY = 1, 200, 500  # entries of yesterday, and of today: some segments more


def data_of(store: Path) -> Path:
    """The data file of the index's newest generation."""
    return file_names.generation(store, file_names.generations(LOCAL, store)[-1]) / "data.mdb"


def over(path: Path, data: bytes) -> None:
    """Put bytes in a file's place, inode and times as they were."""
    found = path.stat()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate(len(data))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def expect(folder: Path, store: Path, last: int) -> dict[str, object]:
    """It holds the numbers up to the last, and nothing else; what opening did."""
    found = children.run(folder, partial(children.numbers_and_recovery, store))
    assert found["numbers"] == list(range(1, last + 1)), found
    recovery: dict[str, object] = found["recovery"]
    return recovery


@pytest.mark.parametrize("name", ["ext4", "xfs"])
@pytest.mark.parametrize("how", ["killed", "power cut"])
def test_mounted_anew_without_a_reboot(
    tmp_path: Path, make_disk: MakeDisk, name: str, how: str
) -> None:
    """The index was not closed, and is junk by now; it is not even opened."""
    disk = make_disk(name)
    store = disk.at / "store"
    children.killed(tmp_path, partial(children.add, store, FIRST, LAST, sync="always"))
    before = data_of(store).stat()
    if how == "power cut":
        disk.cut()
    disk.mount_anew()
    after = data_of(store).stat()
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    for data in (store / "index").glob("*/data.mdb"):
        over(data, b"\xa5" * max(1 << 16, data.stat().st_size))
    found = expect(tmp_path, store, LAST)
    assert not found["index_trusted"]
    # Had it been opened, that would be told instead: LMDB refuses this junk, but not any junk.
    assert found["why_not_trusted"] == "the index files were moved, copied or remounted"
    assert found["rebuilt"]
    # It was closed now: such an index is trusted also on the next mount.
    disk.mount_anew()
    assert expect(tmp_path, store, LAST)["index_trusted"]


@pytest.mark.parametrize("close", ["clean", "killed"])
@pytest.mark.parametrize("mounted", ["still", "anew"])
def test_an_index_of_yesterday_put_back(
    tmp_path: Path, make_disk: MakeDisk, close: str, mounted: str
) -> None:
    """In place, so that device and inode are the same; today's entries are there all the same."""
    disk = make_disk("ext4")
    store = disk.at / "store"
    children.run(tmp_path, lambda: children.add(store, FIRST, LAST).close())
    yesterday = data_of(store).read_bytes()
    if close == "clean":
        children.run(tmp_path, lambda: children.add(store, LAST + 1, TODAY).close())
    else:
        children.killed(tmp_path, partial(children.add, store, LAST + 1, TODAY))
    over(data_of(store), yesterday)
    if mounted == "anew":
        disk.mount_anew()
    found = expect(tmp_path, store, TODAY)
    # After a kill on the same mount it may be used: it is older, and the log tells what came since.
    assert not found["index_trusted"] or (close, mounted) == ("killed", "still")


@pytest.mark.parametrize(
    ("close", "way", "last"),
    [
        ("clean", "instead", TODAY),
        ("killed", "over", LAST + 2),
        ("clean", "over", TODAY),
        ("killed", "over, by rename", LAST + 2),
        ("killed", "over, by rename", TODAY),
    ],
)
def test_a_copy_of_yesterday_restored(
    tmp_path: Path, make_disk: MakeDisk, close: str, way: str, last: int
) -> None:
    """Yesterday's state; or damage is told, where segments of today stand behind yesterday's."""
    disk = make_disk("ext4")
    store, copy = disk.at / "store", tmp_path / "copy"
    if close == "clean":
        children.run(tmp_path, lambda: children.add(store, FIRST, LAST).close())
    else:
        children.killed(tmp_path, partial(children.add, store, FIRST, LAST))
    shutil.copytree(store, copy)
    children.killed(tmp_path, partial(children.add, store, LAST + 1, last))
    _restore(copy, store, way)
    found = children.run(tmp_path, partial(children.numbers_and_recovery, store))
    yesterday = list(range(FIRST, LAST + 1))
    if way == "instead":
        assert found["numbers"] == yesterday
    elif found["refused"]:
        assert found["refused"] == "DamagedStoreError"
    elif found["numbers"] != yesterday:
        # Segments of today follow one of yesterday, which is shorter than they say.
        assert found["recovery"]["damage"]
    if way != "over" and not found["refused"]:  # else all of it may be as it was, times included
        assert not found["recovery"]["index_trusted"]


def _restore(copy: Path, store: Path, way: str) -> None:
    """Put the copy's files in place; what is there only since stays, but for ``instead``."""
    if way == "instead":
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        return
    for at, _, files in os.walk(copy):
        target = store / Path(at).relative_to(copy)
        target.mkdir(exist_ok=True)
        for name in files:
            if way == "over":
                shutil.copy2(Path(at) / name, target / name)
            else:
                fresh = target / f"{name}.restored"
                shutil.copy2(Path(at) / name, fresh)
                fresh.replace(target / name)
