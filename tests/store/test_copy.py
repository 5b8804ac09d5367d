"""Prevents a large stream's copy, which is written bit by bit, from being seen half, from being of
no one moment, and from staying behind when it fails or is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import runner
from logstore.engine.dump import copy as copies
from logstore.engine.dump import restore
from logstore.engine.runtime import pins
from logstore.engine.snapshots import snapshot
from logstore.fs import FileSystem
from logstore.log import pinfile
from logstore.options import IMPORTING
from logstore.recovery.check import check
from tests.compaction.dumps import everywhere
from tests.support.inside import engine_of

Store = logstore.Store[bytes]
ROWS = [{b"n": b"%d" % n, b"pad": bytes(50)} for n in range(300)]
SMALL: dict[str, Any] = {"node_max_entries": 5, "segment_bytes": 64 << 10}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Streams that count as large: a commit takes some nodes of one."""
    monkeypatch.setattr(copies, "BESIDE_BYTES", 1000)
    monkeypatch.setattr(copies, "PART_BYTES", 2000)
    with logstore.open(tmp_path / "store", encoding=None, background=False, **SMALL) as made:
        fill(made)
        yield made


def fill(store: Store) -> None:
    stream = store.stream(b"s")
    ids = list(stream.add_many(ROWS))
    stream.delete(*ids[3:200:7])
    group = stream.group(b"g", start="0")
    for entry in group.read(b"c", count=9):
        if entry.id != ids[1]:
            entry.ack()


def stream_and_nodes(store: Store, name: bytes) -> dict[str, Any]:
    """A stream but for its name, and how its entries lie in nodes."""
    stream = store.stream(name)
    info = stream.info().as_dict()
    for key in ("name", "radix-tree-keys", "radix-tree-nodes", "node-bytes", "open-node-bytes"):
        info.pop(key)
    pending = [
        (each.name, one.id, one.consumer, one.delivery_count)
        for each in stream.groups()
        for one in stream.group(each.name).pending_entries()
    ]
    entries = [(entry.id, entry.pairs) for entry in stream]
    return {"info": info, "entries": entries, "pending": pending,
            "groups": repr(stream.groups()), "expires": stream.expires_at}  # fmt: skip


def temporaries(store: Store) -> list[bytes]:
    records = snapshot.read(engine_of(store), lambda view: list(view.records()))
    return [record.name for record in records if record.name.startswith(IMPORTING)]


def others(monkeypatch: pytest.MonkeyPatch, *calls: Callable[[], object]) -> list[int]:
    """Each call once, behind a commit of a copy; how often a copy began is counted."""
    left, begun = list(calls), list[int]()
    real_begin, real_parts = restore.begin_as, copies._parts

    def begin(*args: Any, **named: Any) -> Any:
        begun.append(1)
        return real_begin(*args, **named)

    def parts(nodes: Iterator[Any]) -> Iterator[Any]:
        for part in real_parts(nodes):
            yield part
            if left:
                left.pop(0)()

    monkeypatch.setattr(restore, "begin_as", begin)
    monkeypatch.setattr(copies, "_parts", parts)
    return begun


def test_a_large_stream_is_copied_as_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    stream = store.stream(b"s")
    stream.expire(after=1000)
    begun = others(
        monkeypatch, lambda: seen.append((len(store), b"t" in store)), lambda: stream.add(ROWS[0])
    )
    assert store.copy(b"s", b"t")
    assert begun == [1]
    assert seen == [(1, False)], "the half copy was seen"
    assert stream_and_nodes(store, b"t") == stream_and_nodes(store, b"s")
    assert store.stream(b"t").expires_at is not None
    assert not store.copy(b"s", b"t")
    assert store.copy(b"s", b"t", replace=True)
    assert not temporaries(store)
    stream.add(ROWS[1])
    assert len(store.stream(b"t")) == len(stream) - 1
    store.stream(b"t").add(ROWS[2])
    checked = check(engine_of(store).path)
    assert checked.as_dict()["clean"], checked.as_dict()


def first(store: Store) -> Any:
    return next(iter(store.stream(b"s"))).id


def masked(store: Store) -> None:
    stream = store.stream(b"s")
    stream.delete(first(store))
    stream.set_id(stream.last_id, entries_added=stream.info().entries_added - 1)


def revoke(store: Store) -> None:
    engine = engine_of(store)
    assert pins.revoke_all(engine.fs, engine.path)


def replaced(store: Store) -> None:
    store.drop(b"s")
    fill(store)


MEANWHILE: dict[str, tuple[Callable[[Store], object], int]] = {
    "adds": (lambda store: store.stream(b"s").add_many(ROWS), 1),
    "a compaction": (lambda store: store.compact(full=True), 1),
    "an erasure that takes the pins away": (revoke, 2),
    "an erasure": (lambda store: store.compact(purge=True), 2),
    "a read of a group": (lambda store: store.stream(b"s").group(b"g").read(b"d", count=20), 1),
    "a delete": (lambda store: store.stream(b"s").delete(first(store)), 2),
    "a trim": (lambda store: store.stream(b"s").trim(max_entries=100, approximate=False), 2),
    "a delete, and its count taken back": (masked, 2),
    "another stream of the name": (replaced, 2),
}  # fmt: skip


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_copy_is_of_one_moment(store: Store, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others do while it is written is in it, whether it has to begin again or not."""
    call, tries = MEANWHILE[what]
    begun = others(monkeypatch, lambda: None, lambda: None, lambda: call(store))
    assert store.copy(b"s", b"t")
    assert len(begun) == tries
    assert stream_and_nodes(store, b"t") == stream_and_nodes(store, b"s")
    assert not temporaries(store)
    checked = check(engine_of(store).path)
    assert checked.as_dict()["clean"], checked.as_dict()


def test_an_erasure_beside_a_copy_leaves_nothing_in_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied already, and deleted then, would live until the copy begins again."""
    store.stream(b"s").add({b"secret": b"to be erased"})
    store.stream(b"s").add_many(ROWS)
    path = engine_of(store).path
    assert everywhere(path, b"to be erased")

    def erase() -> None:
        store.stream(b"s").delete(*[e.id for e in store.stream(b"s") if b"secret" in e.fields])
        store.compact(purge=True)

    others(monkeypatch, *[lambda: None] * 12, erase)
    assert store.copy(b"s", b"t")
    assert not any(b"secret" in entry.fields for entry in store.stream(b"s"))
    assert everywhere(path, b"to be erased") == []
    assert stream_and_nodes(store, b"t") == stream_and_nodes(store, b"s")


def lost_row(store: Store) -> None:
    """An entry in the first node of the stream, deleted; its bytes are in the log."""
    stream = store.stream(b"s")
    store.drop(b"s")
    id = stream.add({b"secret": b"to be erased"})
    fill(store)
    stream.delete(id)
    assert everywhere(engine_of(store).path, b"to be erased")


class Standing:
    """A copy in a thread, which begins behind the first step of an erasure and stands at a place,
    until it is let go on."""

    def __init__(self, store: Store, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self._where = store, where
        self._stands, self._over = threading.Event(), threading.Event()
        self._drop, self._read, self._write = (
            copies.drop_unfinished, copies._parts, pinfile.write
        )  # fmt: skip
        self._thread = threading.Thread(target=self._copy)
        self.copied: list[bool] = []
        monkeypatch.setattr(copies, "drop_unfinished", self._drop_unfinished)
        monkeypatch.setattr(copies, "_parts", self._parts)
        monkeypatch.setattr(pinfile, "write", self._write_pin)

    def go_on(self) -> None:
        """To its end."""
        self._over.set()
        self._thread.join(60)
        assert self.copied == [True]

    def _copy(self) -> None:
        self.copied.append(self._store.copy(b"s", b"t"))

    def _drop_unfinished(self, *args: Any) -> None:
        self._drop(*args)
        if not self._stands.is_set():
            self._thread.start()
            assert self._stands.wait(60)

    def _write_pin(self, fs: FileSystem, path: Path, pin: pinfile.Pin) -> None:
        if pin.segments is not None:
            self._at("the pin was looked at, and is written once more")
        self._write(fs, path, pin)

    def _parts(self, nodes: Iterator[Any]) -> Iterator[Any]:
        for number, part in enumerate(self._read(nodes)):
            self._at(f"{number} commits")
            yield part
        self._at("all but the last commit")

    def _at(self, place: str) -> None:
        if place == self._where and not self._stands.is_set():
            self._stands.set()
            assert self._over.wait(60)


@pytest.mark.parametrize("end", ["behind the last look", "over"])
@pytest.mark.parametrize("where", [
    "the pin was looked at, and is written once more", "0 commits", "3 commits",
    "all but the last commit",
])  # fmt: skip
def test_a_copy_that_began_in_an_erasure_has_no_byte_of_what_is_erased(
    store: Store, where: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = engine_of(store).path, runner._left_behind
    lost_row(store)
    standing = Standing(store, where, monkeypatch)

    def left_behind(*args: Any) -> bool:
        found = real(*args)
        if not found and end != "over" and not standing.copied:
            standing.go_on()
        return found

    monkeypatch.setattr(runner, "_left_behind", left_behind)
    store.compact(purge=True)
    assert everywhere(path, b"to be erased") == []
    if end == "over":
        standing.go_on()
    assert standing.copied == [True]
    assert everywhere(path, b"to be erased") == []
    assert stream_and_nodes(store, b"t") == stream_and_nodes(store, b"s")
    assert not temporaries(store)


def test_an_erasure_drops_what_a_copy_left_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = engine_of(store).uuid
    commit, begun = store._opened.commit, list[restore.UnfinishedStream]()
    real = copies.drop_unfinished

    def drop_unfinished(*args: Any) -> None:
        real(*args)
        if not begun:
            name = copies._temporary_name(uuid, b"t")
            begun.append(commit(partial(restore.begin_as, temporary=name)))

    monkeypatch.setattr(copies, "drop_unfinished", drop_unfinished)
    store.compact(purge=True)
    assert begun
    assert not temporaries(store)


def test_a_killed_copy_is_counted_and_not_listed_and_erased_with_the_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "discard", lambda *_, **__: None)
    others(monkeypatch, lambda: store.stream(b"t").add(ROWS[0]))
    assert not store.copy(b"s", b"t")
    assert temporaries(store)
    assert store.info().streams == len(store) + 1
    store.compact(purge=True)
    assert not temporaries(store)
    assert store.info().streams == len(store) == 2


def test_unfinished_copies_are_searched_in_short_snapshots(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot is held over all streams of a store; those behind the first ones go, too."""
    for n in range(20):
        store.stream(b"more-%d" % n).add({b"n": b"1"})
    engine, opened = engine_of(store), store._opened
    for mark in (b"a" * 32, b"b" * 32):
        name = copies._sealed_name(engine.uuid, mark)
        opened.commit(partial(restore.begin_as, temporary=name))
    monkeypatch.setattr(copies, "RECORDS_A_SNAPSHOT", 4)
    looks: list[int] = []
    real = snapshot.read

    def read(*args: Any) -> Any:
        looks.append(1)
        return real(*args)

    monkeypatch.setattr(copies.snapshot, "read", read)
    assert len(temporaries(store)) == 2
    before = len(looks)
    copies.drop_unfinished(engine, opened.free)
    assert len(looks) - before > 20 // 4
    assert not temporaries(store)


def test_a_copy_and_an_import_have_different_temporary_names(store: Store) -> None:
    """An import of a stream whose name looks like that of a copy goes on; so does what a user made
    under such a name."""
    commit, mine = store._opened.commit, copies.COPYING + b"mine"
    temporary = commit(partial(restore.begin, name=b"copy:t"))
    store.stream(mine).add(ROWS[0])
    assert store.copy(b"s", b"t")
    store.compact(purge=True)
    commit(partial(restore.extend, temporary=temporary, before=restore.VerifiedNodes(), parts=[[]],
                   after=restore.VerifiedNodes()))  # fmt: skip
    assert sorted(temporaries(store)) == sorted([temporary.name, mine])
    assert len(store.stream(mine)) == 1


def test_a_copy_beside_endless_deletes_takes_one_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = others(monkeypatch, *[lambda: store.stream(b"s").delete(first(store))] * 100)
    assert store.copy(b"s", b"t")
    assert len(begun) == copies.TRIES
    assert stream_and_nodes(store, b"t") == stream_and_nodes(store, b"s")
    assert not temporaries(store)


@pytest.mark.parametrize("at", [1, 4], ids=["the first commit", "a part"])
def test_an_interrupted_copy_raises_no_committedinterrupt(store: Store, at: int) -> None:
    """A commit of it counts, and says so to who is interrupted behind it; the copy does not."""
    opened, count = store._opened, [0]

    def commit(step: Any) -> Any:
        done = opened.commit(step)
        count[0] += 1
        if count[0] == at:
            raise logstore.CommittedInterrupt(
                "interrupted; the commit counts"
            ) from KeyboardInterrupt()
        return done

    with pytest.raises(KeyboardInterrupt) as told_of:
        copies.copy_beside(engine_of(store), commit, opened.free, b"s", b"t", replace=False)
    assert not isinstance(told_of.value, logstore.CommittedError)
    assert b"t" not in list(store.streams())


def test_a_copy_that_cannot_be_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stream_and_nodes(store, b"s")
    with monkeypatch.context() as patched:
        others(patched, lambda: store.stream(b"t").add(ROWS[0]))
        assert not store.copy(b"s", b"t")
    assert len(store.stream(b"t")) == 1
    with monkeypatch.context() as patched:
        others(patched, lambda: store.drop(b"s"))
        with pytest.raises(logstore.StreamNotFoundError):
            store.copy(b"s", b"u")
    assert not temporaries(store)
    assert sorted(store.streams()) == [b"t"]
    fill(store)
    assert len(stream_and_nodes(store, b"s")["entries"]) == len(before["entries"])


KILLED = """
import os, signal, sys
import logstore
from logstore.compaction import runner
from logstore.engine.dump import copy as copies
from logstore.engine.runtime.engine import Engine
from logstore.fs import File

copies.BESIDE_BYTES, copies.PART_BYTES = 1000, 5000
left = [int(sys.argv[2])]
real = File.pwrite
def pwrite(self, data, offset):
    if str(self.path).endswith(".log"):
        left[0] -= 1
        if not left[0]:
            if sys.argv[3] == "behind":
                real(self, data, offset)
            os.kill(os.getpid(), signal.SIGKILL)
    return real(self, data, offset)
with logstore.open(sys.argv[1], encoding=None, background=False) as store:
    File.pwrite = pwrite
    store.copy(b"s", b"t", replace=True)
    os._exit(0)
"""


@pytest.mark.parametrize("side", ["before", "behind"])
def test_a_copy_that_is_killed_at_any_write_is_there_whole_or_not(
    tmp_path: Path, side: str
) -> None:
    path, writes = tmp_path / "store", 0
    with logstore.open(path, encoding=None, background=False, **SMALL) as store:
        fill(store)
        store.stream(b"t").add({b"old": b"one"})
        whole, old = stream_and_nodes(store, b"s"), stream_and_nodes(store, b"t")
    while True:
        writes += 1
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(writes), side],
                              check=False)  # fmt: skip
        with logstore.open(path, encoding=None, background=False) as store:
            assert stream_and_nodes(store, b"s") == whole
            assert sorted(store.streams()) == [b"s", b"t"]
            found = stream_and_nodes(store, b"t")
            if not done.returncode:
                break
            assert found in (whole, old)
            if found == whole:
                store.drop(b"t")
                store.stream(b"t").add({b"old": b"one"})
                old = stream_and_nodes(store, b"t")
    assert writes > 5
    assert found == whole
    with logstore.open(path, encoding=None, background=False) as store:
        assert not temporaries(store)
    checked = check(path)
    assert checked.as_dict()["clean"], checked.as_dict()
