"""Prevents a URI that shows half a store, another store, or fewer entries than were shipped."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.runtime import maintenance_locks
from logstore.errors import (
    CorruptionError,
    Error,
    FileSystemError,
    NotAStoreError,
    OptionError,
    ReadOnlyError,
    SnapshotExpiredError,
)
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.log.shipfile import count_erasure
from logstore.log.shipped import MANIFEST, OBJECTS, ShipTarget
from logstore.recovery import backup
from logstore.recovery.check import check
from tests.recovery.shipped import (
    ROWS,
    URI,
    at_once,
    bucket_server,
    empty_bucket,
    filled,
    ids,
    names_and_bytes,
    ship,
)
from tests.support.inside import FixedClock, engine_of
from tests.tools.commands import invoke, ok


def restored(uri: object, target: Path) -> list[str]:
    """What a store that is made of a URI has; checked, all of it."""
    shutil.rmtree(target, ignore_errors=True)
    backup.fetch(str(uri), target)
    found = check(target, careful=True)
    assert (found.damage, found.tail_bytes) == ([], 0)
    with logstore.open(target, background=False) as store:
        return ids(store)


def test_a_ship_sends_new_files_and_removes_old_ones(tmp_path: Path) -> None:
    uri, target = tmp_path / "away", tmp_path / "again"
    with filled(tmp_path / "store") as store:
        first = ship(store, uri)
        assert (first.sent_files, first.removed) == (first.files, 0)
        assert restored(uri, target) == ids(store)
        assert ship(store, uri)._replace(sent_files=-1) == first._replace(
            sent_files=-1, sent_bytes=0
        )
        store.stream("x").add({"a": "1"})
        more = ship(store, uri.as_uri())
        # The one segment that is written to came anew, and its old bytes are named by nobody.
        assert (more.sent_files, more.removed, more.files) == (1, 1, first.files)
        assert restored(uri, target) == ids(store)
        store.stream("x").trim(max_entries=10, approximate=False)
        store.compact(purge=True)
        store.checkpoint()
        last = ship(store, uri)
        assert last.removed > 0
        assert last.size_bytes < first.size_bytes // 2
        assert restored(uri, target) == ids(store)
        assert len(os.listdir(uri / OBJECTS)) == last.files
        assert not logstore_pins(store)


def logstore_pins(store: logstore.Store[bytes]) -> list[str]:
    return os.listdir(Path(store.path) / "pins")


def test_changes_during_a_ship_are_in_the_next_one(tmp_path: Path) -> None:
    """Commits, checkpoints and a compaction that takes segments away, while files are sent."""
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        before = ids(store)

        def changes() -> None:
            store.stream("x").trim(max_entries=10, approximate=False)
            for _ in range(3):
                store.stream("x").add({"a": "late"})
                store.checkpoint()
            store.compact()

        with at_once(1, changes) as progress:
            ship(store, uri, progress)
        assert restored(uri, tmp_path / "again") == before
        ship(store, uri)
        assert restored(uri, tmp_path / "again") == ids(store)


def test_an_erasure_meanwhile_publishes_nothing(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:

        def erase() -> None:
            store.stream("x").trim(max_entries=10, approximate=False)
            store.compact(purge=True)

        with at_once(3, erase) as progress, pytest.raises(SnapshotExpiredError):
            ship(store, uri, progress)
        assert ShipTarget(str(uri)).manifest() is None
        ship(store, uri)
        assert restored(uri, tmp_path / "again") == ids(store)


def test_a_segment_that_is_gone_is_damage_while_the_pin_holds(tmp_path: Path) -> None:
    """To ship again would end the same way, for ever."""
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        last = max(file_names.segments(LOCAL, tmp_path / "store")) - 1

        def lose() -> None:
            file_names.segment(tmp_path / "store", last).unlink()

        with at_once(1, lose) as progress, pytest.raises(CorruptionError, match="did not remove"):
            ship(store, uri, progress)
        assert ShipTarget(str(uri)).manifest() is None
        assert not logstore_pins(store)


def test_a_uri_has_one_store_and_one_history(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        store.backup(tmp_path / "older")
        store.stream("x").add({"a": "of the newer"}, "9999999999999-0")
        ship(store, uri)
        want = ids(store)
        with pytest.raises(OptionError, match="in the store itself"):
            ship(store, tmp_path / "store" / "away")
    with logstore.open(tmp_path / "older", background=False) as older:
        for _ in range(2):  # behind what was shipped; then as far, by another way
            with pytest.raises(OptionError, match="does not lead to the present"):
                ship(older, uri, take_over=True)
            older.stream("x").add({"a": "of the older one " * 9})
    with logstore.open(tmp_path / "other", background=False) as other:
        other.stream("x").add({"a": "1"})
        with pytest.raises(OptionError, match="another store"):
            ship(other, uri)
    assert restored(uri, tmp_path / "again") == want


def test_damage_is_told_and_never_a_shorter_store(tmp_path: Path) -> None:
    uri, target = tmp_path / "away", tmp_path / "again"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
    manifest = uri / MANIFEST
    whole = manifest.read_bytes()
    found = ShipTarget(str(uri)).manifest()
    assert found is not None
    segment = next(part for part in found.parts if part.path.endswith(".log"))
    outside = found._replace(parts=(segment._replace(path="log/../../x.log"), *found.parts))
    without = found._replace(parts=tuple(each for each in found.parts if each.path != "STORE"))
    for bad in (
        b"", whole[:-9], whole.replace(b"log/", b"Log/", 1), outside.pack(), without.pack(),
    ):  # fmt: skip
        manifest.write_bytes(bad)
        with pytest.raises(CorruptionError, match=MANIFEST):
            backup.fetch(str(uri), target)
        assert not target.exists()
    manifest.write_bytes(whole)
    thing = uri / OBJECTS / segment.sha256
    data = bytearray(thing.read_bytes())
    data[len(data) // 2] ^= 1
    cases: list[tuple[bytes | None, type[Error]]] = [
        (bytes(data), CorruptionError),
        (bytes(data[:-1]), CorruptionError),
        (bytes(data) + b"more", CorruptionError),
        (None, SnapshotExpiredError),
    ]
    for changed, error in cases:
        thing.unlink()
        if changed is not None:
            thing.write_bytes(changed)
        with pytest.raises(error, match=segment.path):
            backup.fetch(str(uri), target)
        assert not target.exists()
        thing.touch()
    with pytest.raises(NotAStoreError, match="nothing was shipped") as caught:
        backup.fetch(str(tmp_path / "nothing"), target)
    assert "has not ended" not in str(caught.value)
    manifest.unlink()
    with pytest.raises(NotAStoreError, match="its first ship has not ended: wait, or ship again"):
        backup.fetch(str(uri), target)


def test_progress_tells_how_many_bytes_are_done(tmp_path: Path) -> None:
    """Of a ship and of a fetch, before each file."""
    uri, target = tmp_path / "away", tmp_path / "back"
    sent, fetched = list[tuple[int, int]](), list[tuple[int, int]]()
    with filled(tmp_path / "store") as store:
        ship(store, uri, lambda *done: sent.append(done))
    found = backup.fetch(str(uri), target, progress=lambda *done: fetched.append(done))
    sizes = [part.size_bytes for part in found.parts]
    assert fetched == [(sum(sizes[:at]), sum(sizes)) for at in range(len(sizes))]
    assert [total for _, total in sent] == [sum(sizes)] * len(sent)
    assert [done for done, _ in sent] == sorted({done for done, _ in sent})
    assert sent[0][0] == 0
    assert {now - before for (before, _), (now, _) in pairwise(sent)} <= set(sizes)


def test_progress_of_a_restore_tells_how_many_files_are_done(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        store.checkpoint()
        store.backup(tmp_path / "copy")
    told = list[tuple[int, int]]()
    backup.restore(tmp_path / "copy", tmp_path / "back", progress=lambda *done: told.append(done))
    count = len(told)
    assert count > 2
    assert told == [(at, count) for at in range(count)]
    assert names_and_bytes(tmp_path / "back") == names_and_bytes(tmp_path / "copy")


KILLED = """
import os, signal, sys
import logstore
from tests.recovery.shipped import ship
def progress(done, total, calls=[]):
    calls.append(1)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
with logstore.open(sys.argv[1], background=False) as store:
    ship(store, sys.argv[2], progress)
"""


def test_a_killed_ship_is_gone_on_with(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        files = ship(store, tmp_path / "whole").files
    words = [sys.executable, "-c", KILLED, tmp_path / "store", uri, str(files - 1)]
    done = subprocess.run(words, check=False)
    assert done.returncode == -signal.SIGKILL
    assert ShipTarget(str(uri)).manifest() is None
    (uri / OBJECTS / ("0" * 64 + ".tmp")).write_bytes(b"half")
    (uri / OBJECTS / "README").write_bytes(b"not ours")
    with logstore.open(tmp_path / "store", background=False) as store:
        gone_on = ship(store, uri)
        assert gone_on.sent_files < gone_on.files
        assert restored(uri, tmp_path / "again") == ids(store)
    there = os.listdir(uri / OBJECTS)
    assert ("README" in there, [name for name in there if ".tmp" in name]) == (True, [])


def test_an_object_store_that_is_killed_and_comes_again(tmp_path: Path) -> None:
    port = empty_bucket(tmp_path / "s3")
    uri = (
        f"s3://someone:secret@bucket/stores/a?endpoint_override=127.0.0.1%3A{port}"
        "&scheme=http&region=us-east-1"
    )
    store = filled(tmp_path / "store")
    with bucket_server(tmp_path / "s3", port) as server:

        def kill() -> None:
            server.kill()
            server.wait()

        with at_once(4, kill) as progress, pytest.raises(FileSystemError) as caught:
            ship(store, uri, progress)
    assert "s3://bucket/stores/a" in str(caught.value)
    assert "secret" not in str(caught.value)
    with bucket_server(tmp_path / "s3", port):
        with pytest.raises(NotAStoreError, match="nothing was shipped"):
            backup.fetch(uri, tmp_path / "again")
        done = ship(store, uri)
        assert 0 < done.sent_files <= done.files - 3
        store.stream("x").add({"a": "1"})
        more = ship(store, uri)
        assert (more.sent_files, more.removed, more.left) == (1, 1, 0)
        want = ids(store)
        store.close()
        told = ok("restore", uri, tmp_path / "again")
        assert "secret" not in told
        with logstore.open(tmp_path / "again", background=False) as again:
            assert ids(again) == want
        assert "secret" not in ok("ship", tmp_path / "store", uri)
    refused = invoke("ship", tmp_path / "store", "gopher://somewhere")
    assert (refused.exit_code, "no URI that pyarrow reads" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    "uri",
    ["s3://me:secret@[x/y", "s3://me:secret@host:99999999/x?key=secret", "no://me:secret@b/c",
     "s3://me:secr et@b/c?secret"],
)  # fmt: skip
def test_a_uri_that_is_none_is_refused_without_its_secrets(uri: str) -> None:
    with pytest.raises(OptionError) as caught:
        ShipTarget(uri)
    assert "secret" not in str(caught.value)
    assert "secr et" not in str(caught.value)


def view(uri: object) -> Store[bytes]:
    return logstore.open(str(uri), readonly=True)


def shipped_files(uri: Path) -> list[tuple[str, bytes]]:
    files = [each for each in sorted(uri.rglob("*")) if each.is_file()]
    return [(str(each), each.read_bytes()) for each in files]


def test_a_shipped_store_is_read_from_an_object_store(tmp_path: Path) -> None:
    """Ranges, scans, groups and commands; and a server that goes away is an error, not the end."""
    port = empty_bucket(tmp_path / "s3")
    uri = URI.format(port=port)
    with bucket_server(tmp_path / "s3", port) as server:
        with filled(tmp_path / "store") as store:
            group = store.stream("x").group("g", start="0")
            group.read("c", count=3)
            store.stream("x").delete(ids(store)[7])
            store.stream("open").add({"a": "1"})
            ship(store, uri)
            want, told = ids(store), group.info()
            table = pa.table(store.stream("x").scan())
        opened = view(uri)
        assert ids(opened) == want
        assert opened.stream("x").group("g").info() == told
        assert pa.table(opened.stream("x").scan()) == table
        assert opened.stream("open").last is not None
        again = pickle.loads(pickle.dumps(opened))
        assert len(again.stream("x")) == len(want)
        again.close()
        assert "secret" not in f"{opened!r} {opened.info()}"
        with pytest.raises(ReadOnlyError):
            opened.stream("x").add({"a": "1"})
        assert f"{len(want):,}" in ok("streams", uri)
        assert str(len(want)) in ok("sql", uri, "select count(*) from x")
        refused = invoke("add", uri, "x", "a=1")
        assert refused.exit_code == 1
        assert "read only: change the store itself" in refused.stderr
        assert "secret" not in refused.stderr
        server.kill()
        server.wait()
        assert ids(opened) == want  # from memory
        engine_of(opened).segments.forget()
        with pytest.raises(FileSystemError, match="s3://bucket/stores/a failed"):
            ids(opened)
        with pytest.raises(FileSystemError):
            view(uri)
    with bucket_server(tmp_path / "s3", port):
        assert ids(opened) == want
    opened.close()


def test_a_view_stays_at_its_moment(tmp_path: Path) -> None:
    """Newer ships replace what was written to; only what compaction removed is told as gone."""
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
        want = ids(store)
        with view(uri) as opened, view(uri.as_uri()) as unread:
            store.stream("x").add({"a": "late"})
            before = set(os.listdir(uri / OBJECTS))
            ship(store, uri)
            assert before - set(os.listdir(uri / OBJECTS))
            assert ids(opened) == want
            store.stream("x").trim(max_entries=10, approximate=False)
            store.compact(purge=True)
            store.checkpoint()
            ship(store, uri)
            with pytest.raises(SnapshotExpiredError, match="again"):
                ids(unread)
        bytes_there = shipped_files(uri)
        with view(uri) as opened:
            assert ids(opened) == ids(store)
        assert shipped_files(uri) == bytes_there


def test_a_reader_of_an_older_state_is_not_cut_off(tmp_path: Path) -> None:
    """Two ships later, segments that grew, and then were compacted away, are there to the end."""
    uri, clock = tmp_path / "away", FixedClock(1_700_000_000_000)
    with filled(tmp_path / "store", clock) as store:
        ship(store, uri, keep_ms=60_000)
        want = ids(store)
        with view(uri) as opened, view(uri) as late:
            store.stream("x").add({"a": "late"})
            clock.ms += 30_000
            ship(store, uri, keep_ms=60_000)
            store.stream("x").trim(max_entries=10)
            store.compact(full=True)
            clock.ms += 30_000
            done = ship(store, uri, keep_ms=60_000)
            assert done.kept
            assert ids(opened) == want
            clock.ms += 59_999
            again = ship(store, uri, keep_ms=60_000)
            assert again.kept == done.kept
            clock.ms += 1
            last = ship(store, uri, keep_ms=60_000)
            assert (last.kept, last.removed) == (0, done.kept)
            assert len(os.listdir(uri / OBJECTS)) == last.files
            with pytest.raises(SnapshotExpiredError, match="again"):
                ids(late)
        assert restored(uri, tmp_path / "again") == ids(store)
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("x").trim(max_entries=1)
        store.compact(full=True)
        assert store.ship(uri).kept  # for two hours, if nothing else is said
        assert store.ship(uri, keep=0).kept == 0
        for odd in (-1, "2 hours"):
            with pytest.raises(OptionError, match="keep"):
                store.ship(uri, keep=odd)  # type: ignore[arg-type]


def objects_with(uri: Path, value: bytes) -> list[str]:
    """The objects at a URI in which a value stands."""
    return [each.name for each in (uri / OBJECTS).iterdir() if value in each.read_bytes()]


def test_an_erasure_reaches_what_is_kept_for_readers(tmp_path: Path) -> None:
    """At every URI, with the next ship to it, however long that is to keep; what a compaction
    before the erasure had taken out of the log goes, too."""
    uri, other, secret = tmp_path / "away", tmp_path / "other", b"4711-secret"
    clock = FixedClock(1_700_000_000_000)
    with filled(tmp_path / "store", clock) as store:
        erased = store.stream("erased")
        erased.add_many([{"a": secret, "n": str(n)} for n in range(ROWS)])
        for each in (uri, other):
            ship(store, each, keep_ms=60_000)
        with view(uri) as opened:
            erased.trim(max_entries=0, approximate=False)
            store.compact(full=True)
            clock.ms += 1
            assert ship(store, uri, keep_ms=60_000).kept
            assert objects_with(uri, secret)  # it was deleted, and nobody asked for more
            store.compact(purge=True)
            clock.ms += 1
            done = ship(store, uri, keep_ms=60_000)
            assert (done.kept, done.left, objects_with(uri, secret)) == (0, 0, [])
            assert objects_with(other, secret)
            assert store.ship(other).kept == 0
            assert objects_with(other, secret) == []
            with pytest.raises(SnapshotExpiredError, match="erasure"):
                [entry.fields for entry in opened.stream("erased").range()]
        store.stream("x").trim(max_entries=100)
        store.compact(full=True)
        clock.ms += 1
        assert ship(store, uri, keep_ms=60_000).kept, "what is no erasure keeps as ever"
        for each in (uri, other):
            assert restored(each, tmp_path / f"of {each.name}")
        assert restored(uri, tmp_path / "again") == ids(store)


def ship_and_trim(store: Store[bytes], uri: Path, secret: bytes) -> None:
    """Ship entries, and trim them."""
    erased = store.stream("erased")
    erased.add_many([{"a": secret, "n": str(n)} for n in range(ROWS)])
    ship(store, uri, keep_ms=60_000)
    erased.trim(max_entries=0, approximate=False)


def test_an_erasure_that_a_ship_did_not_see_reaches_the_next_one(tmp_path: Path) -> None:
    """It ended while one ship ended: that counts as one that knew nothing of it."""
    uri, secret = tmp_path / "away", b"4711-secret"
    with filled(tmp_path / "store") as store:
        ship_and_trim(store, uri, secret)
        store.compact(full=True)

        def erase() -> None:
            count_erasure(LOCAL, tmp_path / "store")

        with at_once(1, erase) as progress:
            assert ship(store, uri, progress, keep_ms=60_000).kept
        assert objects_with(uri, secret)
        assert ship(store, uri, keep_ms=60_000).kept == 0
        assert objects_with(uri, secret) == []


def test_a_take_over_keeps_nothing_of_the_other(tmp_path: Path) -> None:
    """It cannot know what the other erased."""
    uri, secret = tmp_path / "away", b"4711-secret"
    with filled(tmp_path / "store") as store:
        ship_and_trim(store, uri, secret)
        store.compact(purge=True)
        store.backup(tmp_path / "copy")
    with logstore.open(tmp_path / "copy", background=False) as store:
        assert ship(store, uri, take_over=True, keep_ms=60_000).kept == 0
    assert objects_with(uri, secret) == []


def test_an_object_that_was_changed_is_sent_again(tmp_path: Path) -> None:
    uri, target = tmp_path / "away", tmp_path / "again"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
        for name in os.listdir(uri / OBJECTS):
            thing = uri / OBJECTS / name
            data = bytearray(thing.read_bytes())
            data[len(data) // 2] ^= 1
            thing.write_bytes(data)
        with pytest.raises(CorruptionError, match="verify"):
            backup.fetch(str(uri), target)
        assert ship(store, uri).repaired == 0
        done = ship(store, uri, verify=True)
        assert (done.repaired, done.sent_files) == (done.files, done.files)
        assert restored(uri, target) == ids(store)
        assert ship(store, uri, verify=True).repaired == 0
        text = ok("ship", tmp_path / "store", uri, "--verify", "--keep", "90m")
        assert "repaired" in text


def test_files_that_are_made_of_the_log_are_not_missed(tmp_path: Path) -> None:
    """Hints and checkpoints at a URI, lost or changed: all is read from the segments."""
    uri, target = tmp_path / "away", tmp_path / "again"
    with filled(tmp_path / "store") as store:
        maintenance_locks.write_missing_hints(engine_of(store))
        ship(store, uri)
        want = ids(store)
        found = ShipTarget(str(uri)).manifest()
        assert found is not None
        derived = [part for part in found.parts if part.path.endswith((".hint", ".ckpt"))]
        assert {Path(part.path).parent.name for part in derived} == {"log", "checkpoint"}
        for part in derived:
            thing = uri / OBJECTS / part.sha256
            thing.write_bytes(thing.read_bytes()[:-1] + b"?")
        for _ in range(2):
            with view(uri) as opened:
                assert ids(opened) == want
            assert restored(uri, target) == want
            for part in derived:
                (uri / OBJECTS / part.sha256).unlink(missing_ok=True)
        segment = next(part for part in found.parts if part.path.endswith(".log"))
        (uri / OBJECTS / segment.sha256).unlink()
        with pytest.raises(SnapshotExpiredError, match="ship again"), view(uri) as opened:
            ids(opened)
        assert ship(store, uri).sent_files == len(derived) + 1
        with view(uri) as opened:
            assert ids(opened) == want


def test_a_uri_without_a_shipped_store_is_an_error(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
    with pytest.raises(OptionError, match="give readonly=True"):
        logstore.open("s3://me:secret@bucket/stores/a")
    with pytest.raises(NotAStoreError, match="nothing was shipped"):
        view("mock://nothing/here")
    with logstore.open((tmp_path / "store").as_uri()) as store:
        store.stream("x").add({"a": "a file: URI is the directory"})
    found = [part for part in ShipTarget(str(uri)).published().parts if part.path.endswith(".log")]
    for number, part in enumerate(found, 1):  # a sealed segment, and the one that is written to
        thing = uri / OBJECTS / part.sha256
        whole = thing.read_bytes()
        data = bytearray(whole)
        data[len(data) // 2] ^= 1
        for changed in (bytes(data), whole[: len(whole) // 2]):
            thing.write_bytes(changed)
            with pytest.raises(CorruptionError) as caught:
                view(uri)
            assert caught.value.segment == number
        thing.write_bytes(whole)
    (uri / "MANIFEST.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"MANIFEST\.json"):
        view(uri)
