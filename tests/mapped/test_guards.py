"""Regions that are looked after, in this process: what is lost reads as zeros and is told."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from logstore import mapped
from logstore.codec import codec_name

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
