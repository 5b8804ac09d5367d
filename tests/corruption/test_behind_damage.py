"""Prevents frames behind damage from being applied to a node that is not theirs.

An append is encoded against its node's master ID, and a delete counts from its first entry: when
the frames are lost that sealed one node and began the next, or some in between, what follows must
not become entries under other IDs, nor delete others.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.format import Kind
from logstore.log.log_reader import LogFrame
from tests.corruption import frames

Truth = dict[str, dict[str, str]]
DELETED = {"3-0", "13-0", "14-0"}


@pytest.fixture
def small_nodes(tmp_path: Path) -> tuple[Path, Truth]:
    """Three nodes of ten entries, single adds, all in one sealed segment; no index, no hints."""
    path = tmp_path / "store"
    truth: Truth = {}
    with logstore.open(path, segment_bytes=1 << 16, node_max_entries=10, sync="always",
                       background=False, encoding="utf-8") as store:  # fmt: skip
        stream = store.stream("x")
        for n in range(1, 26):
            truth[f"{n}-0"] = {"n": str(n), "text": "t" * 40}
            stream.add(truth[f"{n}-0"], id=f"{n}-0")
            if n == 18:
                stream.delete(*DELETED)
        while len(list((path / "log").glob("*.log"))) < 2:
            store.stream("filler").add({"b": "z" * 3000})
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    shutil.rmtree(path / "index")
    return path, truth


def read(path: Path) -> Truth:
    """All entries of the stream, each ID once, ascending."""
    with logstore.open(path, background=False, encoding="utf-8") as store:
        stream = store.stream("x")
        found = [(str(entry.id), dict(entry.fields)) for entry in stream]
        assert len(stream) == len(found)
        return dict(found)


Pick = Callable[[list[LogFrame]], list[LogFrame]]


def sealing(found: list[LogFrame]) -> list[LogFrame]:
    """The NODE frame of the first node, and the OPEN frame of the second."""
    at = next(place for place, frame in enumerate(found) if frame.kind == Kind.NODE)
    return found[at : at + 2]


def last_sealing(found: list[LogFrame]) -> list[LogFrame]:
    """The same of the node before the last: the appends behind are the last the stream has."""
    at = [place for place, frame in enumerate(found) if frame.kind == Kind.NODE][1]
    return found[at : at + 2]


def second_open(found: list[LogFrame]) -> list[LogFrame]:
    """The OPEN frame of the second node alone."""
    return sealing(found)[1:]


def an_append(found: list[LogFrame]) -> list[LogFrame]:
    """One append in the last node."""
    return [[frame for frame in found if frame.kind == Kind.APPEND][-3]]


def creation(found: list[LogFrame]) -> list[LogFrame]:
    """The frame that gives the stream its name."""
    return found[:1]


@pytest.mark.parametrize("pick", [sealing, last_sealing, second_open, an_append])
def test_damage_is_never_read_as_another_entry(small_nodes: tuple[Path, Truth], pick: Pick) -> None:
    path, truth = small_nodes
    for frame in pick(frames.of(path, 1)):
        frames.spoil(path, frame)
    found = read(path)
    assert all(truth[id] == fields for id, fields in found.items())
    assert not DELETED & set(found), "what was deleted stays so: the nodes that hold it are whole"
    assert len(found) >= 7


def test_each_single_frame_may_be_lost(small_nodes: tuple[Path, Truth], tmp_path: Path) -> None:
    """Whatever frame it is: the entries that are there are those that were added."""
    path, truth = small_nodes
    of_stream = [frame for frame in frames.of(path, 1) if frame.offset < 8000]
    for number, frame in zip(itertools.count(), of_stream, strict=False):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(path, copy)
        frames.spoil(copy, frame)
        found = read(copy)
        assert all(truth[id] == fields for id, fields in found.items()), frame
        shutil.rmtree(copy)


def test_a_stream_whose_name_was_lost_gets_another(small_nodes: tuple[Path, Truth]) -> None:
    path, truth = small_nodes
    frames.spoil(path, creation(frames.of(path, 1))[0])
    with logstore.open(path, background=False, encoding="utf-8") as store:
        (name,) = [name for name in store.streams() if "lost" in name]
        found = {str(entry.id): dict(entry.fields) for entry in store.stream(name)}
    assert found == {id: fields for id, fields in truth.items() if id not in DELETED}


def test_one_stream_whose_open_node_is_damaged_does_not_close_the_store(
    small_nodes: tuple[Path, Truth],
) -> None:
    """A quiet stream's open node lies in an old segment that has its hint."""
    path, truth = small_nodes
    with logstore.open(path, background=False):
        pass  # leaves a hint
    assert list((path / "log").glob("*.hint"))
    shutil.rmtree(path / "index")
    first_open = [frame for frame in frames.of(path, 1) if frame.kind == Kind.OPEN][2]
    frames.spoil(path, first_open)
    found = read(path)
    assert all(truth[id] == fields for id, fields in found.items())
    assert "20-0" in found
    assert "25-0" not in found
