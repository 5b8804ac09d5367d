"""Prevents the two ways to the system, compiled and by ctypes, from doing different things: the
address of a map, sleeping on words and waking, what tells one file from another."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from logstore import fsinfo, mapped
from logstore.codec import codec_name
from logstore.engine.shm import futex

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


def test_who_sleeps_is_woken_and_counted(way: str, words: Any) -> None:
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
