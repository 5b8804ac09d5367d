"""Deciding the copy of a stream: its nodes and groups, as they are, under another name.

Invariants: the copy is of the moment of its commit, all or nothing; no node is re-encoded, but
tombstones that stand beside a node are set in the bytes of its copy. Entries, counts, groups with
what is pending in them, what is remembered of idempotent adds, and when the stream expires are
copied; other settings and what is scheduled are not.

A large stream is copied in commits of some nodes each, so that others wait for some of them and not
for all (``copy_beside``). In crash order: its sealed nodes, as of a moment, go to a stream under a
temporary name, as those of an import do (``dump.restore``); the last commit adds the nodes that the
source got since, its counts and groups, and gives the copy its name. That commit makes sure that
nothing but adds happened to the source since that moment: else what was copied is dropped, and it
begins again, the last time in one commit. Who is killed leaves the temporary stream, which the next
one who copies to that name drops, or an erasure.

*Beside an erasure.* A pin holds the nodes that are read, as they were at that moment: with the
bytes of what was deleted before. So each commit looks, under LOCK, whether the pin is still there,
and who finds it gone begins again. An erasure drops all of these streams before its first pass
(``drop_unfinished``), for the moment they are of may lie before a delete. Behind each pass it
revokes all pins, drops these streams again, and only then looks whether a deleted byte is left. The
pin is written twice, and the second time may put back one that was revoked in between: then a
segment was dropped since before the first time, which is looked at next. It is not renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import export, restore
from logstore.engine.dump.export import Export
from logstore.engine.dump.restore import (
    INSTALL_MAX_BYTES,
    Commit,
    Sealed,
    UnfinishedStream,
    VerifiedNodes,
    VerifiedPart,
    VerifiedStream,
)
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import lifecycle
from logstore.engine.streams.add import existing
from logstore.errors import (
    CommittedError,
    Error,
    InvalidPayloadError,
    SnapshotExpiredError,
    StreamExistsError,
    TooLargeError,
    UsageError,
)
from logstore.features.schema_rows import SchemaRows, StoredSchema
from logstore.features.ttl_rows import Expire
from logstore.ids import ZERO_ID, StreamID
from logstore.log import pinfile
from logstore.options import COPYING
from logstore.rdb.value import Node
from logstore.row_seal import digest
from logstore.tuples import NamedTuple

BESIDE_BYTES = 1 << 20  # of nodes: less is copied in one commit, in some milliseconds
PART_BYTES = 128 << 10  # of one commit of a large one: about a millisecond under LOCK
RECORDS_A_SNAPSHOT = 10_000
TRIES = 3  # while others delete from the source
_MARK = 32  # digits, of the target


PinCheck: TypeAlias = Callable[[int], object]  # at this time; SnapshotExpiredError if it is not


class _SourceChanged(Exception):  # noqa: N818  (control flow of one copy)
    """Something other than an add happened to the source."""


def copy(txn: WriteTxn, source: bytes, target: bytes, *, replace: bool = False) -> bool:
    """Copy a stream; False if the target is there already and ``replace`` is False.

    StreamNotFoundError; UsageError if both are one; TooLargeError above 1 GiB.
    """
    if source == target:
        raise UsageError("source and destination objects are the same: name another target")
    record = existing(txn, source)
    if txn.record_by_name(target) is not None and not replace:
        return False
    if record.node_bytes > INSTALL_MAX_BYTES:
        raise TooLargeError(
            f"a stream of {record.node_bytes} bytes cannot be copied in one commit "
            f"({INSTALL_MAX_BYTES} at most): read it, and add it in batches with add_many",
            stream=source,
        )
    expires_ms, schema = record.expires_ms, SchemaRows(txn.index).text(record.number)
    restore.install(txn, target, _prepared(txn, source), replace=True)
    _give(txn, existing(txn, target).number, expires_ms, schema)
    return True


def _give(txn: WriteTxn, number: int, expires_ms: int, schema: str | None) -> None:
    """Give the copy what stands beside the entries of its source."""
    if expires_ms:
        txn.emit(Expire(number, expires_ms))
    if schema is not None:
        txn.emit(StoredSchema(number, schema))


def _prepared(txn: WriteTxn, source: bytes) -> VerifiedStream:
    """The stream as this commit has it so far."""
    txn.flush()
    view = Snapshot(txn.index, txn.segments, lambda: txn.now_ms)
    found = export.seen(view, source)
    nodes: list[Sealed] = []
    for master, locator in found.sealed:
        lp = view.segments.node(found.stream, master, locator)
        if locator.vector:
            lp = codec().fold(lp, locator.vector)
        nodes.append(Sealed(master, locator.last, locator.live, lp))
    if found.open_node is not None:
        key, lp = found.open_node
        master = StreamID.unpacked(key)
        nodes.append(Sealed(master, codec().last_id(lp, *master), codec().counts(lp)[0], lp))
    return VerifiedStream([nodes], VerifiedNodes(first=found.info.first or ZERO_ID), found.info)


def copy_beside(
    engine: Engine, commit: Commit, free: Commit, source: bytes, target: bytes, *, replace: bool
) -> bool:
    """As ``copy``, of which this is the form for large streams. ``commit`` runs an operation, and
    ``free`` one that gives space back."""
    at_once = partial(copy, source=source, target=target, replace=replace)
    for _ in range(TRIES):
        if not snapshot.read(engine, partial(_is_for_parts, source=source, target=target,
                                             replace=replace)):  # fmt: skip
            break
        try:
            return _in_parts(engine, commit, free, source, target, replace=replace)
        except (
            _SourceChanged,
            SnapshotExpiredError,
            StreamExistsError,
        ):  # the last: it was dropped
            continue
    copied: bool = commit(at_once)
    return copied


def drop_unfinished(engine: Engine, free: Commit) -> None:
    """Drop all copies that are not whole, whether somebody writes them now or was killed."""
    after, found = -1, _SnapshotPage([], 0)
    while found.last != after:  # streams that are made meanwhile have larger numbers
        after = found.last
        found = snapshot.read(engine, partial(_unfinished, uuid=engine.uuid, after=after))
        for name in found.names:
            free(partial(lifecycle.drop, name=name))


class _SnapshotPage(NamedTuple):
    """What one snapshot found, and the last stream that it looked at."""

    names: list[bytes]
    last: int


def _unfinished(view: Snapshot, uuid: bytes, after: int) -> _SnapshotPage:
    found, last = [], after
    for record in islice(view.index.records(after), RECORDS_A_SNAPSHOT):
        name, last = record.name, record.number
        if name.startswith(COPYING) and name == _sealed_name(uuid, name[len(COPYING) :][:_MARK]):
            found.append(name)
    return _SnapshotPage(found, last)


def _temporary_name(uuid: bytes, target: bytes) -> bytes:
    """No import and no user has such a name: the store's UUID is in it."""
    return _sealed_name(uuid, digest(target).hex().encode())


def _sealed_name(uuid: bytes, mark: bytes) -> bytes:
    return COPYING + mark + digest(uuid + mark).hex().encode()


def _is_for_parts(view: Snapshot, source: bytes, target: bytes, *, replace: bool) -> bool:
    """Whether there is a large stream to copy; what is refused, one commit refuses."""
    record = view.record(source)
    if record is None or source == target or (not replace and view.record(target) is not None):
        return False
    return BESIDE_BYTES < record.node_bytes <= INSTALL_MAX_BYTES


def _in_parts(
    engine: Engine, commit: Commit, free: Commit, source: bytes, target: bytes, *, replace: bool
) -> bool:
    """One try; _SourceChanged if it is to be begun again, or SnapshotExpiredError."""
    name = _temporary_name(engine.uuid, target)
    temporary: UnfinishedStream = _before_the_last(
        commit, partial(restore.begin_as, temporary=name)
    )
    done: bool = False
    try:
        edge, dropped = VerifiedNodes(), engine.wake.dropped
        with export.pinned(engine, source) as found:
            if engine.wake.dropped != dropped:
                raise _SourceChanged
            held = partial(pinfile.check, engine.fs, engine.path, found.pin_id)
            for nodes in _parts(found._replace(open_node=None, pin_id="").nodes(engine)):
                part, after = restore.verify(nodes, edge)
                _before_the_last(commit, partial(_extend, held=held, temporary=temporary,
                                                 before=edge, part=part, after=after))  # fmt: skip
                edge = after
                engine.lock.give_way()
            done = commit(partial(_complete, held=held, source=source, target=target,
                                  temporary=temporary, edge=edge, found=found,
                                  replace=replace))  # fmt: skip
    finally:
        if not done:
            with suppress(Error):  # what failed may be the store; the next one does it then
                free(partial(restore.discard, temporary=temporary))
    return done


def _before_the_last(commit: Commit, step: Callable[[WriteTxn], object]) -> Any:
    """A commit that makes no copy by itself: if it counts and its caller is told that something
    failed behind it, that something is raised, as the copy does not count."""
    try:
        return commit(step)
    except CommittedError as exc:
        if exc.__cause__ is None:
            raise
        raise exc.__cause__ from None


def _parts(nodes: Iterator[Node]) -> Iterator[list[Node]]:
    """As many nodes at a time as a commit takes."""
    some: list[Node] = []
    size = 0
    for node in nodes:
        some.append(node)
        size += len(node[1])
        if size >= PART_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _extend(
    txn: WriteTxn,
    held: PinCheck,
    temporary: UnfinishedStream,
    before: VerifiedNodes,
    part: VerifiedPart,
    after: VerifiedNodes,
) -> None:
    """A commit of some nodes; SnapshotExpiredError if an erasure took the pin away."""
    held(txn.now_ms)
    restore.extend(txn, temporary, before, [part], after)


def _complete(
    txn: WriteTxn,
    held: PinCheck,
    source: bytes,
    target: bytes,
    temporary: UnfinishedStream,
    edge: VerifiedNodes,
    found: Export,
    replace: bool,
) -> bool:
    """The last commit: what the source got since, its counts and groups, and the copy's name."""
    held(txn.now_ms)
    record = existing(txn, source)
    if txn.record_by_name(target) is not None and not replace:
        return False
    txn.flush()
    view = Snapshot(txn.index, txn.segments, lambda: txn.now_ms)
    # From the last node that was copied on, as its master ID tells it apart from those behind it.
    after = StreamID(*edge.master) if edge.master is not None else None
    behind = export.behind(view, source, after)
    if export.undisturbed(behind) != export.undisturbed(found):
        raise _SourceChanged
    fold = codec().fold
    rest: list[Node] = []
    for master, locator in behind.sealed:
        lp = view.segments.node(behind.stream, master, locator)
        rest.append((master.packed(), fold(lp, locator.vector) if locator.vector else lp))
    if behind.open_node is not None:
        rest.append(behind.open_node)
    try:
        part, last = restore.verify(rest, edge)
    except InvalidPayloadError:  # IDs were lowered, and given again
        raise _SourceChanged from None
    if last.length != record.length:
        raise _SourceChanged
    expires_ms, schema = record.expires_ms, SchemaRows(txn.index).text(record.number)
    restore.extend(txn, temporary, edge, [part], last)
    restore.finish(txn, temporary, last, target, behind.info, replace=replace)
    _give(txn, temporary.number, expires_ms, schema)
    return True
