"""What processes do around each other, and what a model beside the store says of it.

A piece of work gives a plain answer; its model changes the model, and says what the answer must be.
Work that changes nothing that can be read answers with what it read, or with nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.commit import durability
from logstore.engine.runtime import maintenance_locks
from logstore.log import file_names
from logstore.recovery import check as checking
from tests.crash.states import store_content
from tests.crash.states.model import text
from tests.interleaving.handle import Answer, StoreHandle, Work, added, fields, seen
from tests.model.store import StoreModel
from tests.scan.scanned_stores import make_plan, split_rows


# -- commits -------------------------------------------------------------------------------------
def add(name: str, n: int) -> Work:
    """One entry."""
    return Work(
        "add", lambda at: str(at.store.stream(name).add(fields(n))),
        lambda model: added(model, name, n),
    )  # fmt: skip


def many(name: str, first: int, count: int, size: int) -> Work:
    """Entries in one commit, so many bytes that the segment is sealed before."""
    return Work(
        "add, roll",
        lambda at: [
            str(id) for id in at.store.stream(name).add_many(
                [fields(n, size) for n in range(first, first + count)])
        ],
        lambda model: [added(model, name, n, size) for n in range(first, first + count)],
    )  # fmt: skip


def transaction(n: int) -> Work:
    """Over three streams, one of them new."""

    def do(at: StoreHandle) -> Answer:
        with at.store.transaction() as tx:
            tx.stream("a").add(fields(n))
            tx.stream("c").add(fields(n))
            tx.stream(f"new {n}").add(fields(n))
        return None

    def model(model: StoreModel) -> Answer:
        for name in ("a", "c", f"new {n}"):
            added(model, name, n)

    return Work("transaction", do, model)


def delete(count: int) -> Work:
    """The oldest entries of the shared stream, told apart by what is there at that time."""
    ids = [(n, 1) for n in range(1, count + 1)]
    return Work(
        "delete", lambda at: at.store.stream("a").delete(*ids),
        lambda model: model.delete(b"a", ids).count(1),
    )  # fmt: skip


def trim(max_entries: int) -> Work:
    """All but the newest."""
    return Work(
        "trim", lambda at: at.store.stream("c").trim(max_entries=max_entries, approximate=False),
        lambda model: model.trim(b"c", max_entries, None),
    )  # fmt: skip


def group_read(who: str, count: int) -> Work:
    """What is new to the group."""

    def do(at: StoreHandle) -> Answer:
        found = at.store.stream("b").group("g").read(who, count=count)
        return [str(delivery.id) for delivery in found]

    def model(model: StoreModel) -> Answer:
        stream = model.streams[b"b"]
        given = stream.groups[b"g"].read(stream, who.encode(), model.now, count=count)
        return [text(each.id) for each in given]

    return Work("group read", do, model)


def ack(*ns: int) -> Work:
    """Done with what was pending from the beginning."""
    ids = [(n, 1) for n in ns]
    return Work(
        "ack", lambda at: at.store.stream("b").group("g").ack(*ids),
        lambda model: model.streams[b"b"].groups[b"g"].ack(ids),
    )  # fmt: skip


def rename(old: str, new: str) -> Work:
    """A stream is called otherwise; refused if it is not there."""

    def do(at: StoreHandle) -> Answer:
        try:
            return at.store.rename(old, new)
        except logstore.StreamNotFoundError:
            return "there is none"

    def model(model: StoreModel) -> Answer:
        if model.seen(old.encode()) is None:
            return "there is none"
        return model.rename(old.encode(), new.encode(), replace=True)

    return Work("rename", do, model)


def copy(source: str, target: str) -> Work:
    """A stream twice."""
    return Work(
        "copy", lambda at: at.store.copy(source, target),
        lambda model: model.copy(source.encode(), target.encode(), replace=False),
    )  # fmt: skip


def retain() -> Work:
    """What stream ``r`` does not keep: whole nodes of four entries, but for ten entries."""

    def model(model: StoreModel) -> Answer:
        left = len(model.streams[b"r"].entries)
        return model.trim(b"r", left - max(0, (left - 10) // 4 * 4), None)

    return Work("retention", lambda at: at.store.retain(), model, locks=None)


# -- readers -------------------------------------------------------------------------------------
def _readonly(at: StoreHandle) -> Answer:
    with at.open(readonly=True) as store:
        return store_content.plain(store_content.content(store, at.clock))


def _following(at: StoreHandle) -> Answer:
    if at.reading is None:
        at.reading = at.open(readonly=True)
    return store_content.plain(store_content.content(at.reading, at.clock))


def _scan(at: StoreHandle) -> Answer:
    """A plan, read after it was made; what it read is what there was."""
    made = make_plan(at.store, b"a")
    return [(id, store_content.short(pairs)) for id, pairs in split_rows(made, at.clock.now_ms)]


def _checked(at: StoreHandle) -> Answer:
    report = checking.check(at.path)
    assert not report.damage, report.damage
    return "no damage"


def fork() -> None:
    """A fork closes what LMDB has open in the parent: it opens it again at the next use."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _forked(at: StoreHandle) -> Answer:
    fork()
    return at.content()


def _one(at: StoreHandle) -> Answer:
    return [str(entry.id) for entry in at.store.stream("a").range()]


def _forked_one(at: StoreHandle) -> Answer:
    fork()
    return _one(at)


def _rows(model: StoreModel) -> list[Any]:
    stream = model.seen(b"a")
    return [] if stream is None else [(text(id), list(of)) for id, of in stream.entries.items()]


READ = Work("read", StoreHandle.content, seen, locks=False)
RANGE = Work("range", _one, lambda model: [id for id, _ in _rows(model)], locks=False)
FORK_RANGE = RANGE._replace(name="fork, range", do=_forked_one)
READONLY = Work("read-only", _readonly, seen, locks=False)
FOLLOW = Work("follow", _following, seen, locks=False)
SCAN = Work("scan", _scan, _rows, locks=False)
CHECK = Work("check", _checked, lambda model: "no damage", locks=False)
FORK = Work("fork, read", _forked, seen, locks=None)


# -- care ----------------------------------------------------------------------------------------
def nothing(name: str, do: Callable[[StoreHandle], Any], **flags: bool | None) -> Work:
    """Work that changes nothing that can be read."""

    def quiet(at: StoreHandle) -> Answer:
        do(at)

    return Work(name, quiet, lambda model: None, **flags)


def _backup(at: StoreHandle) -> Answer:
    target = Path(tempfile.mkdtemp(dir=at.path.parent)) / "backup"
    at.store.backup(target)
    copied = StoreHandle(target, at.lock_timeout)
    with copied.open(background=False) as store:
        found = store_content.plain(store_content.content(store, copied.clock))
    shutil.rmtree(target.parent)
    return found


def _shrink(at: StoreHandle) -> Answer:
    """As the background does it: the index is copied without its free pages."""
    shared = at.store._live()
    engine = shared.engine
    with maintenance_locks.alone(engine):
        durability.flush(engine, shared.committer)
        with shared.committer.locked():
            engine.rebuild_locked(engine.copy_index)


def _lose(at: StoreHandle) -> Answer:
    shutil.rmtree(at.path / file_names.INDEX, ignore_errors=True)
    at.store = at.open()
    try:
        return at.content()
    finally:
        at.store.close()


CHECKPOINT = nothing("checkpoint", lambda at: at.store.checkpoint(), cares=True)
COMPACT = nothing("compact", lambda at: at.store.compact(threshold=0.2), cares=True)
PURGE = nothing("purge", lambda at: at.store.compact(purge=True), cares=True)
SHRINK = nothing("copy the index", _shrink, cares=True)
SYNC = nothing("sync", lambda at: at.store.sync(), locks=None)
INFO = nothing("info", lambda at: at.store.info(), locks=False)
BACKUP = Work("backup", _backup, seen, cares=True)
LOSE = Work("index deleted", _lose, seen, fresh=True)


def opened(work: Work, name: str = "") -> Work:
    """The same by a process that opens the store for it, and closes it after."""

    def do(at: StoreHandle) -> Answer:
        at.store = at.open()
        try:
            return work.do(at)
        finally:
            at.store.close()

    return work._replace(name=name or f"open, {work.name}", do=do, fresh=True, locks=True)


def closing() -> Work:
    """Close what was open; the next process opens it again."""
    return nothing("close", lambda at: at.store.close())
