"""Prevents that a thread reads an attribute of a compiled class while its old value is being freed.

mypyc frees the old value before it sets the attribute; logstore/engine/shm/late_free.py says what
to do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import build_engine
from tests.house.repo import ROOT, project
from tests.house.swaps import Store, found

# Classes whose objects one thread has at a time, and what makes that so.
ONE_THREAD = {
    "Batch": "whoever leads has it, and hands it to nobody",
    "GroupState": "part of a transaction",
    "GroupTxn": "a transaction of LMDB, which one thread has",
    "IndexTxn": "a transaction of LMDB, which one thread has",
    "CommitQueue": "its batch is the leader's; its request is held by the thread that made it",
    "PendingSet": "part of a transaction",
    "Request": "the leader's until it is done; its caller looks at what came of it behind that",
    "TxnView": "the view of one transaction",
    "WaitSession": "of one waiter",
}
# Set by who opens a store, before anybody else knows the engine; swapped when it is closed.
WHEN_OPENED = {
    ("Engine", each)
    for each in ("calls", "copy_index", "due_work", "follow", "hand_out", "index_home")
} | {("Metrics", "more")}

SAMPLE = """
class Log:
    def close(self) -> None: ...

class Store:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.number = 0
        self.logs = [log]

    def wrong(self, log: Log) -> None:
        self.number += 1
        if self.number:
            self.log = log

    def wrong_item(self, log: Log) -> None:
        self.logs[0] = log

    def still_wrong(self, log: Log) -> None:
        before = self.log
        self.log = log

    def right(self, log: Log) -> None:
        before = self.log
        self.log = log
        before.close()

def also_wrong(store: Store, log: Log) -> None:
    store.log = log
"""


def sources() -> list[Path]:
    """All modules of the package, compiled or not, by the names they are imported under."""
    packages = project()["tool"]["setuptools"]["packages"]
    folders = [Path(name.replace(".", "/")) for name in packages]
    return sorted(path for folder in folders for path in (ROOT / folder).glob("*.py"))


def test_what_has_work_to_do_at_its_end_is_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = [path.relative_to(ROOT) for path in sources()]
    stores = found(files, {f"logstore.{name}" for name in build_engine.modules(ROOT)})
    assert {store.owner for store in stores} >= set(ONE_THREAD) - {"GroupState", "PendingSet"}
    shared = [
        store for store in stores
        if store.owner not in ONE_THREAD and (store.owner, store.attribute) not in WHEN_OPENED
    ]  # fmt: skip
    assert {store.attribute for store in shared} >= {"generation", "active"}
    assert [store for store in shared if not store.swapped] == []


def test_the_guard_catches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: a guard that lets everything pass would stay green for ever."""
    monkeypatch.chdir(tmp_path)
    Path("sample.py").write_text(SAMPLE)
    lines = SAMPLE.splitlines()

    def told(store: Store) -> tuple[str, bool]:
        return lines[int(store.place.split(":")[1]) - 1].strip(), store.swapped

    wrong, item = ("self.log = log", False), ("self.logs[0] = log", False)
    compiled = found([Path("sample.py")], {"sample"})
    expected = [wrong, item, wrong, ("self.log = log", True), ("store.log = log", False)]
    # `Log` is compiled too, and has no attributes: freeing one does nothing.
    assert [told(store) for store in compiled] == []
    Path("log.py").write_text(SAMPLE.split("class Store", maxsplit=1)[0])
    Path("sample.py").write_text(
        "from log import Log\n" + SAMPLE.replace("class Log:\n    def close(self) -> None: ...", "")
    )
    lines = Path("sample.py").read_text().splitlines()
    compiled = found([Path("sample.py"), Path("log.py")], {"sample"})
    assert [told(store) for store in compiled] == expected
