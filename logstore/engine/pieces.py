"""Deciding a stream that comes in pieces, a commit each, because one commit would be too large.

Invariants, in crash order: the pieces go to a stream under a name for the time being; the last
commit gives it its groups, its counts and its own name, and drops who had that name before. So
readers of the name see all of it or nothing, and whoever is killed leaves only the other name,
which the next one who begins takes away. Each commit leaves a stream that is sound by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.engine import adds, deletes, installs, renames
from logstore.engine.apply import nodes_added
from logstore.engine.installs import Edge, Part
from logstore.engine.state import State
from logstore.errors import StreamExistsError
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.rdb.value import StreamInfoValue

PREFIX = b"__importing__:"


class Temporary(NamedTuple):
    """The stream for the time being."""

    name: bytes
    number: int


def begin(state: State, name: bytes) -> Temporary:
    """Make it, empty; what a killed import left of the name is dropped."""
    temporary = PREFIX + name
    deletes.drop(state, temporary)
    return Temporary(temporary, adds.create(state, temporary).number)


def extend(
    state: State, temporary: Temporary, before: Edge, parts: list[Part], after: Edge
) -> None:
    """Add nodes that were verified behind those of ``before``; StreamExistsError if somebody
    else changed the stream."""
    record = _unchanged(state, temporary, before)
    installs.check_room(state, parts)
    number = record.number
    nodes_added(state, record, installs.written(state, number, parts))
    state.emit(frames.Record(
        number, after.length, after.length, *after.last, *after.first, 0, 0
    ))  # fmt: skip


def finish(
    state: State, temporary: Temporary, edge: Edge, name: bytes, info: StreamInfoValue,
    *, replace: bool,
) -> StreamRecord:  # fmt: skip
    """Make it the stream ``name``; StreamExistsError. ``info`` was verified against ``edge``."""
    record = _unchanged(state, temporary, edge)
    installs.installed(state, record.number, info, edge.first)
    if not renames.rename(state, temporary.name, name, replace=replace):
        raise StreamExistsError(
            "somebody else made the stream while it was brought in: drop it, or give replace=True",
            stream=name,
        )
    return record


def _unchanged(state: State, temporary: Temporary, edge: Edge) -> StreamRecord:
    record = state.record_by_name(temporary.name)
    if (
        record is None
        or record.number != temporary.number
        or (record.length, record.last) != (edge.length, edge.last)
    ):
        raise StreamExistsError(
            "somebody else changed what is being brought in: two imports of one stream at a time",
            stream=temporary.name,
        )
    return record
