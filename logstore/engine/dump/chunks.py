"""Deciding a stream that comes in pieces, a commit each, because one commit would be too large.

Invariants, in crash order: the pieces go to a stream under a name for the time being; the last
commit gives it its groups, its counts and its own name, and drops who had that name before. So
readers of the name see all of it or nothing, and whoever is killed leaves only the other name,
which the next one who begins takes away. Each commit leaves a stream that is sound by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace as replace_
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from logstore.engine.apply.streams import nodes_added
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import idempotent_ids, restore
from logstore.engine.dump.restore import Edge, Part, Prepared
from logstore.engine.streams import add, lifecycle
from logstore.errors import Error, StreamExistsError
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.options import IMPORTING, NAME_MAX_BYTES
from logstore.rdb.value import GroupValue, Idempotence, StreamInfoValue
from logstore.tuples import NamedTuple

GROUPS_A_COMMIT = 300  # and consumers: a commit of so many holds others up for some milliseconds
Commit: TypeAlias = Callable[[Callable[[WriteTxn], Any]], Any]


class Temporary(NamedTuple):
    """The stream for the time being."""

    name: bytes
    number: int


def begin(state: WriteTxn, name: bytes) -> Temporary:
    """Make it, empty; what a killed import left of the name is dropped."""
    temporary = IMPORTING + name
    if len(temporary) > NAME_MAX_BYTES:
        temporary = IMPORTING + blake2b(name, digest_size=16).hexdigest().encode()
    lifecycle.drop(state, temporary)
    return Temporary(temporary, add.create(state, temporary).number)


def extend(
    state: WriteTxn, temporary: Temporary, before: Edge, parts: list[Part], after: Edge
) -> None:
    """Add nodes that were verified behind those of ``before``; StreamExistsError if somebody
    else changed the stream."""
    record = _unchanged(state, temporary, before)
    restore.check_room(state, parts)
    number = record.number
    nodes_added(state, record, restore.written(state, number, parts))
    state.emit(frames.Record(
        number, after.length, after.length, *after.last, *after.first, 0, 0
    ))  # fmt: skip


def describe(state: WriteTxn, temporary: Temporary, edge: Edge, info: StreamInfoValue) -> None:
    """Give it its counts, and all but its groups, which come behind; StreamExistsError."""
    record = _unchanged(state, temporary, edge)
    restore.described(state, record.number, info, edge.first)


def group(
    state: WriteTxn, temporary: Temporary, info: StreamInfoValue, groups: Iterable[GroupValue]
) -> StreamRecord:
    """Give it some of its groups; StreamExistsError."""
    record = _unchanged(state, temporary, info)
    restore.grouped(state, record.number, groups)
    return record


def remember(
    state: WriteTxn, temporary: Temporary, info: StreamInfoValue, found: Idempotence
) -> None:
    """Let it remember some of its idempotent IDs; StreamExistsError."""
    idempotent_ids.install(state, _unchanged(state, temporary, info).number, found)


def name_it(state: WriteTxn, temporary: Temporary, name: bytes, *, replace: bool) -> None:
    """Give it its name; StreamExistsError."""
    if not lifecycle.rename(state, temporary.name, name, replace=replace):
        raise StreamExistsError(
            "somebody else made the stream while it was brought in: drop it, or give replace=True",
            stream=name,
        )


def discard(state: WriteTxn, temporary: Temporary) -> None:
    """Take it away, unless it is somebody else's by now."""
    record = state.record_by_name(temporary.name)
    if record is not None and record.number == temporary.number:
        lifecycle.drop(state, temporary.name)


def _unchanged(state: WriteTxn, temporary: Temporary, edge: Edge | StreamInfoValue) -> StreamRecord:
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


def finish(
    state: WriteTxn, temporary: Temporary, edge: Edge, name: bytes, info: StreamInfoValue,
    *, replace: bool,
) -> None:  # fmt: skip
    """Make it the stream ``name``; StreamExistsError. ``info`` was verified against ``edge``."""
    describe(state, temporary, edge, info)
    group(state, temporary, info, info.all_groups())
    name_it(state, temporary, name, replace=replace)


def complete(
    commit: Commit, temporary: Temporary, edge: Edge, name: bytes, info: StreamInfoValue,
    *, replace: bool, last: Callable[[WriteTxn], object] = bool,
) -> None:  # fmt: skip
    """As ``finish``, but very many groups come in commits of their own before, so that nobody else
    waits for all of them. ``last`` is done in the commit that gives the name."""
    few = not info.many
    if not few:
        commit(lambda state: describe(state, temporary, edge, replace_(info, idempotence=None)))
        for one in idempotent_ids.by_producer(info.idempotence):
            commit(partial(remember, temporary=temporary, info=info, found=one))
        for some in _some(info.all_groups()):
            commit(partial(group, temporary=temporary, info=info, groups=some))

    def finished(state: WriteTxn) -> None:
        if few:
            finish(state, temporary, edge, name, info, replace=replace)
        else:
            _unchanged(state, temporary, info)
            name_it(state, temporary, name, replace=replace)
        last(state)

    commit(finished)


def bring(
    commit: Commit, name: bytes, stream: Prepared, *, replace: bool,
    last: Callable[[WriteTxn], object] = bool,
) -> None:  # fmt: skip
    """Bring in a stream that is in memory; as ``complete``."""
    temporary: Temporary = commit(lambda state: begin(state, name))
    edge = stream.edge
    try:
        commit(lambda state: extend(state, temporary, Edge(), stream.parts, edge))
        complete(commit, temporary, edge, name, stream.info, replace=replace, last=last)
    except BaseException:
        with suppress(Error):  # what failed may be the store; the next one does it then
            commit(lambda state: discard(state, temporary))
        raise


def _some(groups: Iterable[GroupValue]) -> Iterator[list[GroupValue]]:
    """The groups, about as many at a time as a commit takes."""
    some: list[GroupValue] = []
    weight = 0
    for each in groups:
        some.append(each)
        weight += 1 + len(each.consumers) + len(each.pending) // 10
        if weight >= GROUPS_A_COMMIT:
            yield some
            some, weight = [], 0
    if some:
        yield some
