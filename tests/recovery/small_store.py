"""A store so small that all of its log can be named, frame by frame, and what each of them held."""

from __future__ import annotations

from pathlib import Path

import logstore
from logstore.log.log_reader import LogFrame
from tests.corruption import frames

Held = dict[bytes, list[int]]  # of each stream the first halves of its IDs


def make(path: Path) -> None:
    """Stream x by single adds, nodes of four entries, three of them deleted; stream y at once."""
    with logstore.open(
        path, node_max_entries=4, sync="always", background=False, encoding=None
    ) as store:
        for ms in range(1, 11):
            store.stream("x").add({b"n": b"%d" % ms}, f"{ms}-{ms}")
        store.stream("y").add_many((f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 11))
        store.stream("x").delete("2-2", "3-3", "9-9")


def held(path: Path) -> Held:
    """What is in a store; every entry must be whole."""
    found: Held = {}
    with logstore.open(path, background=False, encoding=None) as store:
        for name in store.streams():
            entries = list(store.stream(name))
            assert all(each.pairs == [(b"n", b"%d" % each.id.ms)] for each in entries)
            assert all(each.id.seq == each.id.ms for each in entries)
            assert len(entries) == len(store.stream(name))
            found[name] = [each.id.ms for each in entries]
    return found


def cut(path: Path, frame: LogFrame) -> None:
    """Flip a bit of the last byte of a frame: its head stays right, its checksum does not fit."""
    frames.flip(frames.file(path, frame.segment), frame.end_offset - 1, 7)
