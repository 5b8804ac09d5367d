"""Prevents a store that could not be opened from standing in the way of the next try, in the same
process: LMDB opens an environment once a process, and whoever keeps the error keeps its frames.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.errors import FileSystemError
from tests.faults.layer import KINDS, faulty


@pytest.mark.parametrize("call", ["index: begin", "index: begin reading"])
def test_it_can_be_tried_again(tmp_path: Path, call: str) -> None:
    """Also while the error of the first try is kept."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": "x"}, id="1-0")
    with faulty() as faults:
        faults.counting = True
        logstore.open(path, background=False).close()
        faults.at = faults.met.index(call) + 1
        for nth in range(len(KINDS[call])):
            faults.met.clear()
            faults.nth = nth
            with pytest.raises(FileSystemError) as kept:
                logstore.open(path, background=False)
            faults.counting = False
            with logstore.open(path, background=False) as store:
                assert store.recovery["index_trusted"]
                assert [str(entry.id) for entry in store.stream("a")] == ["1-0"]
            faults.counting = True
            assert kept.value.__traceback__ is not None
    (data,) = (path / "index").rglob("data.mdb")
    assert str(data) not in Path("/proc/self/maps").read_text()
