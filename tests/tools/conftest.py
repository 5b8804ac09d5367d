"""A store with a few entries, and one with more than any pipe holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore

MANY = 5000
ODD_NAME = b"odd\xff"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def store(empty: Path) -> Path:
    """Three entries of text, one that repeats a field, one that is no UTF-8; a second stream."""
    with logstore.open(empty) as opened:
        race = opened.stream("race")
        race.add({"rider": "Castilla", "speed": "30.2"}, "1-1")
        race.add({"rider": "Anna B", "note": "ü\n\\"}, "1-2")
        race.add([("tag", "a"), ("tag", "b")], "2-0")
        race.add({b"\x00\xff": b"\xfe"}, "3-0")
        opened.stream(ODD_NAME).add({"a": "b"}, "7-7")
    return empty


@pytest.fixture
def large(empty: Path) -> Path:
    """So many entries that their lines do not fit into a pipe; in several segments."""
    with logstore.open(empty, segment_bytes=64 * 1024) as opened:
        rows = ((f"{at}-0", {"at": str(at), "text": "x" * 50}) for at in range(1, MANY + 1))
        opened.stream("s").add_many(rows)
    return empty
