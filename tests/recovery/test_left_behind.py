"""Prevents a store from being refused, or wrong, whose marker names an index that was never used.

Who builds an index names it in BOOT, then in WAKE. Killed in between, it leaves a marker of an
index that stands still, while all processes go on with the one before, and may drop segments.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.log import names
from logstore.recovery import compare
from logstore.recovery.check import check

BUILDER = """
import os, signal, sys, logstore
from logstore.engine.runtime.engine import Engine
with logstore.open(sys.argv[1], background=False) as store:
    Engine.settle_generation = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    store.compact(full=True)
"""
GOES_ON = """
import os, signal, sys, logstore
store = logstore.open(sys.argv[1], background=False)
stream = store.stream("a")
stream.add({"x": "1"})
print("open", flush=True)
sys.stdin.readline()
dropped = 0
for _ in range(3):
    stream.add_many([{"n": str(n), "pad": os.urandom(100)} for n in range(3000)])
    stream.trim(maxlen=10)
    dropped += store.compact().segments_dropped
assert dropped > 3
stream.add_many([{"n": str(n), "pad": os.urandom(100)} for n in range(3000)])
stream.add({"last": "1"})
print(len(stream), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left_behind(tmp_path: Path) -> tuple[Path, int]:
    """A store whose last processes were killed so, and how many entries it has."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        store.stream("a").add_many([{"n": str(n)} for n in range(3000)])
    other = subprocess.Popen(
        [sys.executable, "-c", GOES_ON, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    built = subprocess.run([sys.executable, "-c", BUILDER, str(path)], check=False)
    assert built.returncode == -signal.SIGKILL
    out, _ = other.communicate("\n")
    assert other.returncode == -signal.SIGKILL
    return path, int(out)


def test_who_opens_it_builds_an_index_of_what_is_there(left_behind: tuple[Path, int]) -> None:
    path, count = left_behind
    with logstore.open(path, background=False) as store:
        assert not store.recovery["index_trusted"]
        assert len(store.stream("a")) == count
        assert list(store.stream("a"))[-1]["last"] == b"1"
    found = check(path)
    assert not found.damage
    assert found.index == compare.AGREES


def test_a_segment_that_is_missing_amid_the_others_is_damage(
    left_behind: tuple[Path, int],
) -> None:
    path, _ = left_behind
    segments = sorted((path / names.LOG).glob("*.log"))
    assert len(segments) > 2
    segments[-2].unlink()
    with pytest.raises(logstore.DamagedStoreError):
        logstore.open(path, background=False)


def test_a_last_segment_that_is_missing_is_damage(left_behind: tuple[Path, int]) -> None:
    path, _ = left_behind
    for segment in (path / names.LOG).glob("*.log"):
        segment.unlink()
    with pytest.raises(logstore.DamagedStoreError):
        logstore.open(path, background=False)
