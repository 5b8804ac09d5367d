"""Prevents read-only opens that were killed from leaving their private indexes for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import logstore
from tests.engine.procs import Forked

READER = """
import sys, logstore
store = logstore.open(sys.argv[1], readonly=True)
print(len(store.stream("s")), flush=True)
sys.stdin.read()
print(len(store.stream("s")), flush=True)
store.close()
"""


def test_those_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next one that needs a directory there, and never those of the living."""
    path, temporary = tmp_path / "store", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with logstore.open(path) as store:
        store.stream("s").add({"a": 1})
    foreign = [temporary / name for name in ("logstore-private-link", "other", "logstore-x")]
    foreign[0].symlink_to(tmp_path)
    foreign[1].mkdir()
    foreign[2].mkdir()
    before = set(temporary.iterdir())
    assert before == set(foreign)
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]  # fmt: skip
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
    assert len(set(temporary.iterdir()) - before) == 3
    for reader in readers[:2]:
        reader.kill()
        reader.communicate()
    assert len(set(temporary.iterdir()) - before) == 3
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 1
        assert len(set(temporary.iterdir()) - before) == 2
        with Forked(lambda: len(store.stream("s"))):
            pass
        assert len(store.stream("s")) == 1
    said = readers[2].communicate(timeout=60)[0]
    assert said == "1\n"
    logstore.open(path, readonly=True).close()  # the child of the fork never closed its own
    assert set(temporary.iterdir()) == before
    assert os.listdir(path)
