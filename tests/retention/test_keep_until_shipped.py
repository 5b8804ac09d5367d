"""Prevents retention from dropping what was not shipped yet, where a stream is to keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import OptionError
from tests.retention.retained import ids_of, opened
from tests.support.inside import FixedClock
from tests.tools.commands import ok


def kept(store: logstore.Store[bytes]) -> Any:
    store.retain()
    return ids_of(store, b"s")


def test_keep_until_shipped_drops_shipped_nodes_only(tmp_path: Path) -> None:
    path, uri, clock = tmp_path / "store", tmp_path / "away", FixedClock()
    with opened(path, clock) as store:
        stream, free = store.stream("s"), store.stream("free")
        for each in (stream, free):
            each.configure(max_entries=0)
        assert stream.configure(keep_until_shipped=True).keep_until_shipped
        for n in range(50):
            stream.add({"n": n})
            free.add({"n": n})
        every = ids_of(store, b"s")
        assert kept(store) == every
        assert ids_of(store, b"free") == []
        assert store.info().shipped_ms == 0
        store.ship(uri)
        shipped = store.info()
        assert (shipped.unshipped_bytes, shipped.shipped_ms) == (0, clock.ms)
        assert shipped.shipped_to == str(uri)
        for n in range(50):
            stream.add({"n": n})
        assert store.info().unshipped_bytes > 0
        left = kept(store)  # of the node that was open then, entries came behind what was shipped
        assert set(every) - set(left)
        assert left == (every + left[-50:])[-len(left) :]
        with logstore.open(uri, readonly=True) as view:
            assert ids_of(view, b"s") == every
        store.ship(uri)
        assert kept(store) == []
        stream.add({"n": 1})
        assert len(kept(store)) == 1
        stream.configure(keep_until_shipped=False)
        assert kept(store) == []
        with pytest.raises(OptionError, match="keep_until_shipped"):
            stream.configure(keep_until_shipped=1)  # type: ignore[arg-type]


def test_nodes_moved_by_compaction_count_as_shipped(tmp_path: Path) -> None:
    """The segments of compaction have higher numbers than the one that is written to."""
    path, uri, clock = tmp_path / "store", tmp_path / "away", FixedClock()
    with opened(path, clock) as store:
        stream = store.stream("s")
        ids = [stream.add({"n": n, "pad": "x" * 50}) for n in range(200)]
        stream.configure(keep_until_shipped=True, max_entries=0)
        stream.delete(*ids[::2], *ids[1:180:4])
        store.compact()
        assert kept(store) == ids_of(store, b"s") != []
        store.ship(uri)
        assert kept(store) == []


def test_a_record_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    path, uri = tmp_path / "store", tmp_path / "away"
    ok("add", path, "s", "a=1")
    ok("configure", path, "s", "--max-entries", "0", "--keep-until-shipped", "yes", "--yes")
    ok("ship", path, uri)
    assert "all of it" in ok("info", path)
    record = path / "SHIPPED"
    whole = record.read_bytes()
    for bad in (b"", bytes(len(whole)), whole[:-1], whole[:4] + b"\x00" + whole[5:]):
        record.write_bytes(bad)
        ok("retain", path)
        with logstore.open(path, readonly=True) as store:
            assert (len(store.stream("s")), store.info().shipped_ms) == (1, 0)
    record.write_bytes(whole)
    ok("retain", path)
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 0
