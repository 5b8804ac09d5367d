"""Prevents a copy of a store from taking over the URI that its original ships to, from when on the
original would be refused; and a restored store from having no way to go on where the lost one was.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

import logstore
from logstore.log import file_names, versioned
from logstore.log.shipped import MANIFEST, ShipTarget, digest
from tests.tools.commands import invoke, ok

Copy = Callable[[logstore.Store[bytes], Path, Path], object]


def opened(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, background=False)


def add(store: logstore.Store[bytes], n: int) -> None:
    store.stream("s").add({"n": n})


def shipped(uri: Path) -> list[int]:
    """What a reader of the URI sees."""
    with logstore.open(uri, readonly=True, background=False) as store:
        return [int(entry.fields[b"n"]) for entry in store.stream("s")]


def by_backup(store: logstore.Store[bytes], _uri: Path, target: Path) -> None:
    store.backup(target)


def by_restore(store: logstore.Store[bytes], _uri: Path, target: Path) -> None:
    store.backup(target.with_name("backup"))
    ok("restore", target.with_name("backup"), target)


def from_the_uri(store: logstore.Store[bytes], uri: Path, target: Path) -> None:
    store.ship(uri)
    ok("restore", uri, target)


def shipped_and_copied(store: logstore.Store[bytes], uri: Path, copy: Copy) -> None:
    """An entry that is shipped, and one that is not."""
    add(store, 1)
    store.ship(uri)
    add(store, 2)
    copy(store, uri, uri.with_name("copy"))


@pytest.mark.parametrize("copy", [by_backup, by_restore, from_the_uri])
def test_a_copy_that_is_written_to_does_not_take_over_the_uri(tmp_path: Path, copy: Copy) -> None:
    uri = tmp_path / "away"
    with opened(tmp_path / "store") as store:
        shipped_and_copied(store, uri, copy)
        with opened(tmp_path / "copy") as other:
            with pytest.raises(logstore.OptionError, match="take_over"):
                other.ship(uri)
            add(other, 3)
            with pytest.raises(logstore.OptionError, match="take_over"):
                other.ship(uri)
            other.ship(tmp_path / "another")
            other.ship(tmp_path / "another")
        add(store, 4)
        store.ship(uri)
        assert shipped(uri) == [1, 2, 4]
        assert shipped(tmp_path / "another") == [1, 2, 3]


@pytest.mark.parametrize("copy", [by_backup, by_restore, from_the_uri])
def test_a_restored_store_goes_on_where_the_lost_one_was(tmp_path: Path, copy: Copy) -> None:
    """Its operator says so, once; from then on the old one is refused, if it comes back."""
    uri = tmp_path / "away"
    with opened(tmp_path / "store") as store:
        shipped_and_copied(store, uri, copy)
        with opened(tmp_path / "copy") as restored:
            add(restored, 3)
            restored.ship(uri, take_over=True)
            assert shipped(uri) == [1, 2, 3]
            add(restored, 4)
            restored.ship(uri)
            assert shipped(uri) == [1, 2, 3, 4]
            with pytest.raises(logstore.OptionError, match="take_over"):
                store.ship(uri)
            add(store, 5)
            for take_over in (False, True):  # that would show fewer entries than were shipped
                with pytest.raises(logstore.OptionError, match="give"):
                    store.ship(uri, take_over=take_over)
            assert shipped(uri) == [1, 2, 3, 4]


def test_a_take_over_shows_no_fewer_entries(tmp_path: Path) -> None:
    """Of a backup from before the last ship: what came since is at the URI alone."""
    uri = tmp_path / "away"
    with opened(tmp_path / "store") as store:
        add(store, 1)
        store.backup(tmp_path / "copy")
        add(store, 2)
        store.ship(uri)
    with opened(tmp_path / "copy") as older:
        add(older, 3)
        add(older, 4)
        with pytest.raises(logstore.OptionError, match="does not lead to the present"):
            older.ship(uri, take_over=True)
    assert shipped(uri) == [1, 2]


def test_the_command_takes_over_and_says_how(tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with opened(tmp_path / "store") as store:
        add(store, 1)
        store.ship(uri)
        store.backup(tmp_path / "copy")
    refused = invoke("ship", tmp_path / "copy", uri)
    assert refused.exit_code == 1
    assert "--take-over" in refused.stderr
    ok("ship", tmp_path / "copy", uri, "--take-over")
    ok("ship", tmp_path / "copy", uri)
    assert invoke("ship", tmp_path / "store", uri).exit_code == 1


def test_one_store_ships_to_several_uris_in_turn(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        for n in range(4):
            add(store, n)
            store.ship(tmp_path / ("left", "right")[n % 2])
    assert shipped(tmp_path / "left") == [0, 1, 2]
    assert shipped(tmp_path / "right") == [0, 1, 2, 3]


def test_a_moved_store_goes_on(tmp_path: Path) -> None:
    """Its directory, and the way to the URI, have other names: it is the same store."""
    with opened(tmp_path / "store") as store:
        add(store, 1)
        store.ship(tmp_path / "away")
    (tmp_path / "away").rename(tmp_path / "there")
    shutil.copytree(tmp_path / "store", tmp_path / "moved", symlinks=True)
    shutil.rmtree(tmp_path / "store")
    with opened(tmp_path / "moved") as store:
        add(store, 2)
        store.ship(tmp_path / "there")
    assert shipped(tmp_path / "there") == [1, 2]


KILLED = """
import os, signal, sys
import logstore
from logstore.recovery import shipping
published = shipping._Ship._publish
def and_dies(self, made):
    published(self, made)
    os.kill(os.getpid(), signal.SIGKILL)
shipping._Ship._publish = and_dies
with logstore.open(sys.argv[1], background=False) as store:
    store.ship(sys.argv[2])
"""


def test_a_first_ship_that_is_killed_behind_its_manifest_is_gone_on_with(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        add(store, 1)
    words = [sys.executable, "-c", KILLED, tmp_path / "store", tmp_path / "away"]
    assert subprocess.run(words, check=False).returncode < 0
    assert shipped(tmp_path / "away") == [1]
    with opened(tmp_path / "store") as store:
        assert store.info().shipped_ms == 0
        add(store, 2)
        store.ship(tmp_path / "away")
    assert shipped(tmp_path / "away") == [1, 2]


def as_before_lines(uri: Path, store: Path) -> None:
    """As a logstore without lines left the URI and the store."""
    outer = json.loads((uri / MANIFEST).read_text())
    body = json.loads(outer["manifest"])
    del body["line"]
    text = json.dumps(body)
    (uri / MANIFEST).write_text(json.dumps({"manifest": text, "sha256": digest(text.encode())}))
    data = versioned.unsealed((store / file_names.SHIPPED).read_bytes())
    assert data is not None
    record = msgpack.unpackb(data)
    del record["line"]
    (store / file_names.SHIPPED).write_bytes(versioned.sealed(msgpack.packb(record)))


def test_a_ship_continues_that_of_an_older_logstore(tmp_path: Path) -> None:
    """By the store that it says it shipped, and by no copy of it."""
    uri = tmp_path / "away"
    with opened(tmp_path / "store") as store:
        add(store, 1)
        store.ship(uri)
        store.backup(tmp_path / "copy")
    as_before_lines(uri, tmp_path / "store")
    with opened(tmp_path / "copy") as copy, pytest.raises(logstore.OptionError, match="take_over"):
        copy.ship(uri)
    with opened(tmp_path / "store") as store:
        add(store, 2)
        store.ship(uri)
    assert ShipTarget(str(uri)).published().line
    assert shipped(uri) == [1, 2]
