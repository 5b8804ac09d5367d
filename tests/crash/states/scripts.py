"""Workloads on streams: adds, batches, deletes, trims, transactions, segments that are sealed."""

from __future__ import annotations

from typing import Any

import pytest

import logstore
from logstore.compaction import closing
from logstore.engine.commit import pipeline
from tests import figures
from tests.crash.states.model import pairs, value
from tests.crash.states.workload import Do, Session, Workload
from tests.model.store import StoreModel
from tests.support import inside
from tests.support.inside import START_MS


def add(name: str, n: int, size: int = 30) -> Do:
    """One entry with an ID of its number."""
    return Do(
        f"add {n}",
        lambda at: at.store.stream(name).add({"v": value(n, size)}, id=f"{n}-1"),
        lambda model: model.add(name.encode(), pairs(n, size), (n, 1)),
    )


def batch(name: str, first: int, count: int, size: int = 30) -> Do:
    """Entries in one commit."""
    rows = [(f"{n}-1", {"v": value(n, size)}) for n in range(first, first + count)]

    def model(model: StoreModel) -> None:
        for n in range(first, first + count):
            model.add(name.encode(), pairs(n, size), (n, 1))

    return Do(f"add_many {first}", lambda at: at.store.stream(name).add_many(rows), model)


def delete(name: str, *ns: int) -> Do:
    """Entries by ID."""
    ids = [f"{n}-1" for n in ns]
    return Do(
        f"delete {ns}", lambda at: at.store.stream(name).delete(*ids),
        lambda model: model.delete(name.encode(), [(n, 1) for n in ns]),
    )  # fmt: skip


def delete_range(name: str, first: int, last: int) -> Do:
    """Entries of an interval."""
    return Do(
        f"delete {first} to {last}",
        lambda at: at.store.stream(name).delete_range(f"{first}-0", f"{last}-9"),
        lambda model: model.delete_range(name.encode(), (first, 0), (last, 9)),
    )


def trim(name: str, max_entries: int) -> Do:
    """All but the newest."""
    return Do(
        f"trim {name}",
        lambda at: at.store.stream(name).trim(max_entries=max_entries, approximate=False),
        lambda model: model.trim(name.encode(), max_entries, None),
    )  # fmt: skip


def drop(name: str) -> Do:
    """A stream goes."""
    return Do(
        f"drop {name}", lambda at: at.store.drop(name), lambda model: model.drop(name.encode())
    )


def transaction(n: int, gone: int) -> Do:
    """Over three streams, one of them new: all or nothing."""

    def do(at: Session) -> None:
        with at.store.transaction() as tx:
            tx.stream("a").add({"v": value(n)}, id=f"{n}-1")
            tx.stream("b").add({"v": value(n)}, id=f"{n}-1")
            tx.stream(f"new {n}").add({"v": value(n)}, id=f"{n}-1")
            tx.stream("a").delete(f"{gone}-1")

    def model(model: StoreModel) -> None:
        for name in ("a", "b", f"new {n}"):
            model.add(name.encode(), pairs(n), (n, 1))
        model.delete(b"a", [(gone, 1)])

    return Do(f"transaction {n}", do, model)


def nothing(name: str, do: Any, *, syncs: bool = False) -> Do:
    """An operation that changes nothing that can be read."""
    return Do(name, do, syncs=syncs)


SYNC = nothing("sync", lambda at: at.store.sync(), syncs=True)
REOPEN = nothing("close and open", lambda at: at.reopen(), syncs=True)
CHECKPOINT = nothing("checkpoint", lambda at: at.store.checkpoint())
COMPACT = nothing("compact", lambda at: at.store.compact(threshold=0.2))
PURGE = nothing("compact, purge", lambda at: at.store.compact(purge=True))
FULL = nothing("compact, full", lambda at: at.store.compact(full=True))


def _tidy(at: Session) -> None:
    """What the last one to close does, at the size of these stores; and something was done."""
    with inside.close_gives_back():
        closing.run(inside.engine_of(at.store), inside.committer_of(at.store))
    at.reopen()


TIDY = nothing("close that gives back", _tidy, syncs=True)


def set_id(name: str, n: int) -> Do:
    """XSETID."""
    return Do(
        f"set_id {n}",
        lambda at: at.store.stream(name).set_id(
            f"{n}-5", entries_added=n, max_deleted_id="1-7"
        ),
        lambda model: model.set_id(name.encode(), (n, 5), n, (1, 7)),
    )  # fmt: skip


RESTORE = Do(
    "restore", lambda at: at.store.restore("copy", at.store.stream("b").dump()),
    lambda model: model.copy(b"b", b"copy", replace=False),
)  # fmt: skip
CREATE = Do("create", lambda at: at.store.create("empty"), lambda model: model.create(b"empty"))


def interrupted(n: int) -> Do:
    """An add that is cut off between its append and its sync, and settled as a dead writer's is."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def do(at: Session) -> None:
        promise, pipeline._keep_promise = pipeline._keep_promise, interrupt
        try:
            with pytest.raises(logstore.CommittedInterrupt):
                at.store.stream("a").add({"v": value(n)}, id=f"{n}-1")
        finally:
            pipeline._keep_promise = promise

    return Do(f"interrupted {n}", do, lambda model: model.add(b"a", pairs(n), (n, 1)))


STREAMS = (
    add("a", 1), interrupted(2), batch("b", 3, 10), add("c", 13), delete("a", 1), CREATE,
    transaction(14, 2), add("a", 15, 30_000), add("a", 16, 30_000), add("a", 17, 30_000),
    delete("b", 3, 4, 5, 6, 7), trim("b", 3), drop("c"), batch("a", 18, 6), trim("a", 4),
    add("c", 24), transaction(25, 23), RESTORE, add("b", 26, 50_000), add("b", 27, 50_000),
    delete("b", 26), set_id("c", 40), delete_range("a", 1, 30), add("a", 41),
)  # fmt: skip
COMPACTED = (
    batch("a", 1, 8, 2000), batch("b", 9, 12, 2000), add("a", 21, 20_000), delete("a", 1, 2, 5),
    delete_range("b", 10, 14), CHECKPOINT, add("a", 30, 60_000), COMPACT, add("b", 31),
    drop("a"), batch("c", 40, 9, 3000), delete("c", 41, 42, 48), add("b", 50), delete("b", 50),
    CHECKPOINT, PURGE, add("c", 60), REOPEN, trim("b", 2), COMPACT, add("b", 61),
)  # fmt: skip
COMPACTED_LAZILY = (
    batch("a", 1, 8, 2000), batch("b", 9, 12, 2000), add("a", 30, 60_000), delete("a", 1, 2, 5),
    SYNC, delete_range("b", 10, 14), COMPACT, add("b", 31), drop("a"), batch("c", 40, 9, 3000),
    COMPACT, add("b", 50),
)  # fmt: skip
LAZY = (
    add("a", 1), batch("b", 2, 6), SYNC, add("a", 8), delete("b", 3), add("b", 9, 1500), SYNC,
    transaction(10, 8), add("a", 11, 40_000), add("a", 12, 40_000), trim("b", 2), CHECKPOINT,
    add("b", 13), SYNC, add("b", 14), add("b", 15), REOPEN, drop("b"), add("a", 16),
)  # fmt: skip
TIDIED = (
    *(add("a", n, 1500) for n in range(1, 9)), batch("b", 41, 5), delete("a", 3, 4), SYNC,
    TIDY, add("a", 60),
)  # fmt: skip
TIDIED_AGAIN = (
    *TIDIED, add("c", 61, 300), *(add("b", n, 2000) for n in range(62, 67)), delete("b", 42),
    drop("c"), TIDY, add("b", 81),
)  # fmt: skip
FULLY = (
    batch("a", 1, 8, 2000), add("b", 9, 500), add("c", 30, 300), add("a", 31, 50_000),
    delete("a", 1, 5), drop("b"), FULL, add("a", 32),
)  # fmt: skip
FULLY_AGAIN = (
    *FULLY, batch("c", 40, 9, 500), delete("c", 41), FULL, REOPEN, add("c", 61),
)  # fmt: skip
REOPENED = (
    add("a", 1), batch("a", 2, 6), CHECKPOINT, add("b", 8), REOPEN, delete("a", 3), REOPEN,
    REOPEN, add("b", 9, 40_000), add("b", 10, 40_000), CHECKPOINT, add("b", 11), CHECKPOINT,
    add("b", 12), REOPEN, drop("a"), CHECKPOINT,
)  # fmt: skip

MORE = (
    Workload("closes that give back", TIDIED_AGAIN),
    Workload("closes that give back, everysec", TIDIED_AGAIN, "everysec"),
    Workload("full compactions", FULLY_AGAIN),
    Workload("full compactions, everysec", FULLY_AGAIN, "everysec"),
)  # in torture
WORKLOADS = (
    Workload("streams", STREAMS),
    Workload("compaction", COMPACTED),
    Workload("compaction, everysec", COMPACTED_LAZILY, "everysec"),
    Workload("everysec", LAZY, "everysec"),
    Workload("checkpoints and closes", REOPENED),
    Workload("a close that gives back", TIDIED, "everysec"),
    Workload("full compaction", FULLY),
    *(() if figures.times() == 1 else MORE),
)
__all__ = ["START_MS", "WORKLOADS"]
