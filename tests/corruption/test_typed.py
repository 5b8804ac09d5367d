"""Prevents bare errors of LMDB, of mmap or of struct from reaching who opens, reads or checks a
store whose files are damaged.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import logstore
from logstore.engine.shm.control_block import MAGIC, SIZE_BYTES, Wake
from logstore.errors import CorruptFrameError, StoreError
from logstore.fs import LOCAL
from logstore.log import names
from tests.corruption import shop
from tests.corruption.pages import DAMAGES, META_PAGES, PAGE

CHECK = """
import sys
from pathlib import Path
import logstore
from logstore.recovery.check import check
try:
    print("damaged" if check(Path(sys.argv[1])).damage else "sound")
except logstore.Error as exc:
    print("refused", exc)
"""


def test_check_of_a_damaged_index(tmp_path: Path) -> None:
    """Whatever LMDB meets in it is told as damage. It may end the process: hence one for each."""
    made = shop.make(tmp_path / "store", 3)
    data = next((made.path / "index").glob("*/data.mdb"))
    whole, was = data.read_bytes(), data.stat()
    rng, told = random.Random(3), Counter[str]()
    for damage in list(DAMAGES.values()) * 2:
        content = bytearray(whole)
        for page in rng.sample(range(META_PAGES, len(content) // PAGE), 3):
            damage(content, page * PAGE, rng)
        with data.open("r+b") as file:
            file.write(content)
        os.utime(data, ns=(was.st_atime_ns, was.st_mtime_ns))  # or the index would not be looked at
        done = subprocess.run(
            [sys.executable, "-c", CHECK, str(made.path)], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode <= 0, done.stderr
        told["ended" if done.returncode else done.stdout.split()[0]] += 1
    print(dict(told))
    assert told["damaged"] >= 5


def test_a_sealed_segment_without_a_byte(tmp_path: Path) -> None:
    """Its nodes are damaged; those of other segments are read on."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, background=False, encoding=None) as store:
        for name in (b"first", b"second"):
            store.stream(name).add_many({b"pad": b"p" * 300} for _ in range(400))
    was = names.segment(path, 1).stat()
    names.segment(path, 1).write_bytes(b"")
    os.utime(names.segment(path, 1), ns=(was.st_atime_ns, was.st_mtime_ns))
    with logstore.open(path, background=False, encoding=None) as store:
        with pytest.raises(CorruptFrameError, match="cut off") as caught:
            list(store.stream(b"first"))
        assert caught.value.segment == 1
        assert len(list(store.stream(b"second"))) == 400


@pytest.mark.parametrize("size", [0, 1, SIZE_BYTES - 3, SIZE_BYTES + 3, SIZE_BYTES + 8])
def test_wake_of_another_length(tmp_path: Path, size: int) -> None:
    """Who is the first makes it anew; who meets it in use is told."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"n": 1})
    (path / names.WAKE).write_bytes(MAGIC + bytes(max(0, size - len(MAGIC))))
    os.truncate(path / names.WAKE, size)
    with pytest.raises(StoreError, match=f"has {size} bytes"):
        Wake(LOCAL, path / names.WAKE)
    with logstore.open(path, background=False) as store:
        assert len(store.stream("s")) == 1
        assert (path / names.WAKE).stat().st_size == SIZE_BYTES
    (path / names.WAKE).write_bytes(MAGIC + bytes(max(0, size - len(MAGIC))))
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 1
