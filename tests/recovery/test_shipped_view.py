"""Prevents a URI that shows other entries than the store that was shipped there, or is changed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import logstore
from logstore.api.store import Store
from logstore.errors import (
    CorruptionError,
    FileSystemError,
    NotAStoreError,
    OptionError,
    ReadOnlyError,
    SnapshotExpired,
)
from logstore.log.shipped import OBJECTS, Place
from tests.recovery.shipped import URI, bucket_server, empty_bucket, filled, ids, ship
from tests.support.inside import engine_of
from tests.tools.commands import invoke, ok


def view(uri: object) -> Store[bytes]:
    return logstore.open(str(uri), readonly=True)


def there(uri: Path) -> list[tuple[str, bytes]]:
    files = [each for each in sorted(uri.rglob("*")) if each.is_file()]
    return [(str(each), each.read_bytes()) for each in files]


def test_all_that_is_read_is_read_from_an_object_store(tmp_path: Path) -> None:
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
            store.stream("x").trim(maxlen=10)
            store.compact(purge=True)
            store.checkpoint()
            ship(store, uri)
            with pytest.raises(SnapshotExpired, match="again"):
                ids(unread)
        bytes_there = there(uri)
        with view(uri) as opened:
            assert ids(opened) == ids(store)
        assert there(uri) == bytes_there


def test_what_is_no_shipped_store_is_told(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
    with pytest.raises(OptionError, match="give readonly=True"):
        logstore.open("s3://me:secret@bucket/stores/a")
    with pytest.raises(NotAStoreError, match="nothing was shipped"):
        view("mock://nothing/here")
    with logstore.open((tmp_path / "store").as_uri()) as store:
        store.stream("x").add({"a": "a file: URI is the directory"})
    found = [part for part in Place(str(uri)).published().parts if part.path.endswith(".log")]
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
