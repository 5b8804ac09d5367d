"""Twelve bugs, which the simulation must find.

Those of compiled code are other texts in a copy of its sources, which is built aside
(``tests.support.rebuilt``); those of Python replace a function of the simulated process. Nothing of
them is in what is shipped. Invariants: each alone breaks one rule, which is named here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.engine.commit import log_tail, write_back
from logstore.engine.snapshots import snapshot
from logstore.index.txn import IndexTxn
from tests.simulation.system import Lock
from tests.support.rebuilt import Change

_APPENDED = "        became = self.append(size, start, now_ns, tried)\n"
_PUBLISHED = "            self.publish(tried, size, asked, count)\n        # -- to here\n"
COMPILED: dict[str, tuple[str, Change]] = {
    "names of another version": (
        "names that are kept count for one version of the node",
        Change(
            "_handle.pxi",
            "self.keys_count == row.width and self.keys_version == self.version:",
            "self.keys_count == row.width:",
        ),
    ),
    "published before it is appended": (
        "what is published stands in the log",
        Change(
            "_commit.pxi",
            _APPENDED,
            "        ls_store(w + W_APPLIED, start + size)\n" + _APPENDED,
        ),
    ),
    "a wake-up is missed": (
        "who adds wakes who sleeps on the stream's word",
        Change(
            "_commit.pxi",
            "                ls_wake(<uint32_t*>bucket, EVERYBODY)\n",
            "                pass\n",
        ),
    ),
    "the word of a commit in progress is not set": (
        "who dies in a commit leaves a word that says so",
        Change("_commit.pxi", "        ls_store(w + W_PROGRESS, tried.commit)\n", "        pass\n"),
    ),
    "the sync is skipped": (
        "under `always` a commit is durable before it is told",
        Change("_commit.pxi", "tried.error = ls_sync(fd)", "tried.error = 0"),
    ),
    "LOCK is given back before it is published": (
        "nobody else decides before a commit is published",
        Change(
            "_commit.pxi", _PUBLISHED, "            flock(self.lock_fd, LOCK_UN)\n" + _PUBLISHED
        ),
    ),
    "the name of a new stream is not given back": (
        "the record cache has what the lane held, before the index follows",
        Change(
            "_begin.pxi",
            "cache.owe_begun({h.name: h.number} if h.created else {}, h.sealed())",
            "cache.owe_begun({}, h.sealed())",
        ),
    ),
    "a group that the index has is kept as it was": (
        "a frame that cannot be taken in ends what is held of its group",
        Change(
            "_group_lane.pxi",
            "            return self.unlearn_group(g, number)\n",
            "            return True\n",
        ),
    ),
    "a group's run is not given back": (
        "the record cache has what the lane held, before the pipeline decides",
        Change(
            "_group.pxi",
            "        runs = [stretch.told() for stretch in self.stretches if stretch.dirty]\n",
            "        runs = []\n",
        ),
    ),
}  # fmt: skip


def _tail_too_short() -> None:
    cut = log_tail._cut

    def more(
        engine: Any, txn: Any, file: Any, link: Any, good: int, *, void: bool
    ) -> log_tail.TailReport:
        return cut(engine, txn, file, link, good - 1, void=void)

    log_tail._cut = more


def _indexed_too_early() -> None:
    follow, at = write_back.follow_locked, []

    def follow_locked(engine: Any, words: Any) -> Any:
        at[:] = [engine]
        return follow(engine, words)

    class Early(IndexTxn):
        def put_changes(self, records: Any, opens: Any, meta: Any) -> None:
            super().put_changes(records, opens, meta)
            at[0].wake.indexed_upto = meta.applied
            Lock.host.point("store", "indexed")  # the end of LMDB's transaction is none

    write_back.follow_locked, write_back.IndexTxn = follow_locked, Early  # type: ignore[misc]


def _blind_reader() -> None:
    def as_it_is(_: Any, generation: Any, txn: Any, __: int) -> IndexTxn:
        return IndexTxn(generation, txn)

    snapshot.index_upto = as_it_is


PYTHON: dict[str, tuple[str, Callable[[], None]]] = {
    "a tail is cut too short": ("what is complete in the log is never cut off", _tail_too_short),
    "INDEXED is raised too early": ("INDEXED is never above what LMDB has", _indexed_too_early),
    "a reader does not see another's tail": (
        "a reader lays over the index what it lacks of the log", _blind_reader
    ),
}  # fmt: skip


def nothing() -> None:
    """No bug."""


def planted(name: str) -> Callable[[], None]:
    """What breaks a simulated process."""
    return PYTHON[name][1]
