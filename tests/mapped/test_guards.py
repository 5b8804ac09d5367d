"""Regions that are looked after, in this process, compiled or by ctypes: what is lost reads as
zeros.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from logstore import fsinfo, mapped
from logstore.codec import codec_name
from logstore.engine.shm import futex

PAGE_BYTES = mmap.PAGESIZE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 2 * PAGE_BYTES)
    return path


def mapping_of(path: Path) -> mmap.mmap:
    with path.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), 0)


def test_a_page_that_is_cut_reads_as_zeros_and_is_told(file: Path) -> None:
    """Prevents the end of the process, and zeros that are taken for what was stored."""
    if codec_name() != "native":
        print(why := "without compiled modules there is no handler")
        pytest.skip(why)
    memory, other = mapping_of(file), mapping_of(file)
    guard, untouched = mapped.guard_memory(memory), mapped.guard_memory(other)
    os.truncate(file, PAGE_BYTES)
    assert (memory[0], guard.lost) == (ord("x"), False)
    assert (memory[PAGE_BYTES], guard.lost) == (0, True)
    assert not untouched.lost
    guard.close()
    untouched.close()


def test_a_region_of_nobody_is_never_lost() -> None:
    guard = mapped.nothing()
    assert not guard.lost
    guard.close()
    guard.close()


WORD = 64  # where it stands in the map
compiled = pytest.param(
    "compiled", marks=pytest.mark.skipif(codec_name() != "native", reason="pure")
)


@pytest.fixture(params=[compiled, "ctypes"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two."""
    if request.param == "ctypes":
        for module in (mapped, futex, fsinfo):
            monkeypatch.setattr(module, "NATIVE", None)
    return str(request.param)


@pytest.fixture
def words() -> Any:
    with mmap.mmap(-1, 4096) as made:
        yield made


def test_the_address_is_where_the_memory_is(way: str, words: Any) -> None:
    address = mapped.address_of(words)
    words[WORD : WORD + 4] = b"here"
    assert ctypes.string_at(address + WORD, 4) == b"here"
    words.close()  # nothing holds it any more


def test_an_address_is_of_memory_that_may_be_written_to(way: str) -> None:
    with pytest.raises((BufferError, TypeError)):
        mapped.address_of(b"it may not")


def test_futex_wake_counts_sleepers(way: str, words: Any) -> None:
    address = mapped.address_of(words) + WORD
    assert futex.wake(address) == 0
    sleeper = threading.Thread(target=futex.wait, args=(address, 0, 60.0))
    sleeper.start()
    while not (woken := futex.wake(address)):
        time.sleep(0.001)
    assert woken == 1
    sleeper.join(30)
    assert not sleeper.is_alive()


def test_nobody_sleeps_on_a_word_that_has_changed_or_for_longer_than_asked(
    way: str, words: Any
) -> None:
    address = mapped.address_of(words) + WORD
    futex.wait(address, 1, 1e6)
    futex.wait(address, 0, 0.01)
    futex.wait(address, 0, 0)
    futex.fence(address)
    futex.let_run()


def test_both_tell_the_same_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a \udcff name"
    path.write_bytes(b"")
    told = [fsinfo.file_identity(path), fsinfo.file_identity(tmp_path / "none")]
    monkeypatch.setattr(fsinfo, "NATIVE", None)
    assert [fsinfo.file_identity(path), fsinfo.file_identity(tmp_path / "none")] == told
    assert told[0][2] == path.stat().st_ino
    assert told[1] == (0, 0, 0, 0)
