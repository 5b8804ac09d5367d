"""Prevents a commit that is in the log from staying half done after LMDB refused it.

The index fails at the commit, and for a while after it: the caller is told that it may count, or is
told nothing because it was made good at once; the next operation finds it done, and done once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.errors import CommittedError
from logstore.recovery.check import check
from tests.faults.layer import KINDS, Faults, Kind, faulty
from tests.support import inside


class InARow:
    """The commit of the index fails, and the next calls of LMDB that write."""

    def __init__(self, faults: Faults, most: int) -> None:
        self.left, self._faults = most, faults

    def __call__(self, what: str, where: object) -> Kind | None:
        if not self._faults.counting or not self.left:
            return None
        if what not in {"index: commit", "index: begin"} or (what, self.hits) == INNOCENT:
            return None
        self.left -= 1
        self._faults.met.append(what)
        return KINDS[what][-1]

    @property
    def hits(self) -> int:
        """How many failed so far."""
        return len(self._faults.met)


INNOCENT = ("index: begin", 0)  # of the operation itself: nothing has happened yet


@pytest.mark.parametrize("sync", ["os", "always"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_it_is_made_good(
    tmp_path: Path,
    failures: int,
    sync: logstore.options.Sync,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same call, or by the next."""
    inside.let_lag(monkeypatch, 0)  # each add writes the index
    path = tmp_path / "store"
    with faulty() as faults, logstore.open(path, background=False, sync=sync) as store:
        stream = store.stream("a")
        stream.add({"v": "1"}, id="1-0")
        stream.group("g").create("0")
        faults.fault = InARow(faults, failures)  # type: ignore[method-assign]
        faults.counting = True
        if failures == 1:
            stream.add({"v": "2"}, id="2-0")
        else:
            with pytest.raises(CommittedError, match="do not repeat"):
                stream.add({"v": "2"}, id="2-0")
            assert [str(entry.id) for entry in stream] == ["1-0"], "it was shown unsettled"
        if failures == 3:
            with pytest.raises(logstore.FileSystemError) as told:
                stream.delete("1-0")
            assert not isinstance(told.value, CommittedError)
        assert len(faults.met) == failures
        assert stream.delete("1-0") == 1
        assert [str(entry.id) for entry in stream] == ["2-0"]
        assert len(stream.group("g").read("me")) == 1
        assert stream.info().entries_added == 2
    for _ in range(2):
        with logstore.open(path, background=False) as store:
            assert [str(entry.id) for entry in store.stream("a")] == ["2-0"]
            assert store.stream("a").group("g").pending().count == 1
    assert check(path).as_dict()["clean"]
