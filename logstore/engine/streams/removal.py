"""Deciding what removes entries: deletes by ID and by range, trims, and what groups hold of them.

Deletes are those of XDEL, and of XDELEX, which heeds groups. A trim is that of XTRIM: head to tail,
node by node. The reference policy says what becomes of entries that groups hold: ``keep`` (KEEPREF)
leaves pending entries alone, ``delete`` (DELREF) removes them from every group, ``acked`` (ACKED)
deletes only what no group still needs. An entry is referenced if some group has not read so far,
or has it pending.

Invariants: a node whose last live entry goes is dropped, else its entries are marked; nodes that
are dropped side by side share a frame; the record is stated once, at the end. All is decided before
the first frame, but for what groups hold of the entries, which goes first.

Invariants of deletes: IDs are checked before this is called; the largest deleted ID is kept in the
record; of deletes that heed groups each ID sees what the ones before it did.

Invariants of trims: LIMIT never splits a node; approximate trimming only drops whole nodes and
stops at the first that must stay; exact trimming marks entries inside one node and stops;
``max_deleted`` is never changed; the stream stays when it gets empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, TypeAlias

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import Lookup, NodeRef
from logstore.errors import OptionError
from logstore.ids import ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.log.frame import Ack
from logstore.tuples import NamedTuple


class Removed(NamedTuple):
    """What one commit of work in parts removed."""

    entries: int  # or idempotent IDs
    more: bool  # whether there may be more to remove


def remove(
    txn: WriteTxn,
    record: StreamRecord,
    going: list[tuple[NodeRef, list[int]]],
    largest: StreamID,
    *,
    first: bool,
) -> int:
    """Delete these ordinals, none standing for the whole node; how many entries went."""
    gone = 0
    whole: list[NodeRef] = []
    for ref, ordinals in going:
        if not ordinals or len(ordinals) == ref.live:
            whole.append(ref)
            gone += ref.live
            continue
        drop_whole(txn, record, whole)
        gone += len(ordinals)
        version = ref.version or record.open_version
        txn.emit(frames.Tombstone(record.number, *ref.master, version, tuple(ordinals)))
    drop_whole(txn, record, whole)
    txn.counts["deleted_entries"] += gone
    if gone:
        state_record(txn, record, record.length - gone, largest, first_gone=first)
    return gone


def drop_whole(txn: WriteTxn, record: StreamRecord, whole: list[NodeRef]) -> None:
    """Drop nodes, one frame for each run of neighbours."""
    run: list[NodeRef] = []
    for ref in whole:
        if run and not _neighbours(txn, record, run[-1], ref):
            txn.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
            run = []
        run.append(ref)
    if run:
        txn.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
    whole.clear()


def _neighbours(txn: WriteTxn, record: StreamRecord, left: NodeRef, right: NodeRef) -> bool:
    for ref in nodes.refs(txn, record, left.master.next(), right.master):
        if ref.master > left.master:
            return ref.master == right.master
    return False


def state_record(
    txn: WriteTxn, record: StreamRecord, length: int, max_deleted: StreamID, *, first_gone: bool
) -> None:
    """State the record after entries went; the first ID is looked up again if it is gone."""
    first = record.first
    if length == 0:
        first = ZERO_ID
    elif first_gone:
        first = nodes.first_live(txn, record)
    txn.emit(
        frames.Record(
            record.number, length, record.entries_added, *record.last, *first, *max_deleted
        )
    )


def vacate(txn: WriteTxn, name: bytes) -> None:
    """A name is about to be given to another stream: the one that has it is dropped first."""
    held = txn.holder(name)
    if held is None:
        txn.index.confirm_absent(name)
    else:
        txn.emit(frames.Drop(held.number))


References: TypeAlias = Literal["keep", "delete", "acked"]
MODES = ("keep", "delete", "acked")


def check_mode(mode: str) -> None:
    """OptionError for a word that is not a mode."""
    if mode not in MODES:
        raise OptionError(f"references must be one of {', '.join(MODES)}: {mode!r}")


def referenced(txn: WriteTxn, groups: Sequence[GroupRecord], id: StreamID) -> bool:
    """Whether one of the stream's ``groups`` has not read so far, or has the entry pending."""
    from logstore.engine.txn import pel

    for group in groups:
        if group.last < id:
            return True
        if group.pending and pel.find(txn.groups.index, group.number, id) is not None:
            return True
    return False


def removed(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> int:
    """Entries are no longer pending in a group; how many were."""
    there = _pending(txn, group, ids)
    if there:
        txn.emit(Ack(group.number, there))
    return len(there) // ID_BYTES


def pending_among(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> set[bytes]:
    """The IDs among ``ids`` that are pending in a group, each packed."""
    there = _pending(txn, group, ids)
    return {there[at : at + ID_BYTES] for at in range(0, len(there), ID_BYTES)}


def _pending(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> bytes:
    """The IDs among ``ids`` that are pending in a group, packed and ascending."""
    if not group.pending:
        return b""
    packed, ascending = codec().pack_ids(ids)
    if not ascending:
        packed, _ = codec().pack_ids(sorted(set(ids)))
    from logstore.engine.txn import pel

    return pel.present(txn.groups.index, group.number, packed)


def release(txn: WriteTxn, record: StreamRecord, ids: Sequence[StreamID]) -> None:
    """Take entries out of every group's pending list."""
    for group in txn.groups.of_stream(record.number):
        removed(txn, group, ids)


FEW = 8  # IDs of a node that are looked up one by one


def delete(txn: WriteTxn, name: bytes, ids: Sequence[StreamID], mode: str = "keep") -> int:
    """Delete entries by ID; how many there were. ``mode``: see ``removal.References``."""
    if mode != "keep":
        return delete_ids(txn, name, ids, mode).count(1)
    record = txn.record_by_name(name)
    return 0 if record is None else delete_entries(txn, record, ids)


def delete_entries(txn: WriteTxn, record: StreamRecord, ids: Sequence[StreamID]) -> int:
    """Delete entries of a stream, whatever groups hold of them; how many there were."""
    if not record.length:
        return 0
    going: list[tuple[NodeRef, list[int]]] = []
    asked = set(ids)
    wanted = sorted(dict.fromkeys(ids))
    largest = record.max_deleted
    at = 0
    while at < len(wanted):
        if at + 1 < len(wanted):
            ref, _, high = nodes.around(txn, record, wanted[at])
        else:
            ref, high = nodes.ref_of(txn, record, wanted[at]), wanted[at]
        here = wanted[at : bisect_right(wanted, high, at)]
        at += len(here)
        if ref is None:
            continue
        lp, vector = nodes.listpack(txn, record, ref)
        ordinals, last = _ordinals(lp, vector, ref.master, here, asked)
        if ordinals:
            going.append((ref, ordinals))
            largest = max(largest, last)
    return remove(txn, record, going, largest, first=record.first in asked)


def _ordinals(
    lp: bytes, vector: bytes, master: StreamID, ids: list[StreamID], among: set[StreamID]
) -> tuple[list[int], StreamID]:
    """Where those of some IDs that are in a node stand, and the last of them; ``among``: a set that
    holds these, and none else of the node's."""
    if len(ids) > FEW:  # one pass over the node, however many they are
        there = [row for row in codec().ids(lp, *master, vector) if row[1:] in among]
        return [row[0] for row in there], StreamID(*there[-1][1:]) if there else ZERO_ID
    places = [codec().find(lp, *master, *id, vector) for id in ids]
    last = max((id for id, place in zip(ids, places, strict=True) if place >= 0), default=ZERO_ID)
    return [place for place in places if place >= 0], last


def delete_range(txn: WriteTxn, name: bytes, start: StreamID, end: StreamID) -> int:
    """Delete all entries of the closed interval; how many there were."""
    record = txn.record_by_name(name)
    if record is None or not record.length or start > end:
        return 0
    going: list[tuple[NodeRef, list[int]]] = []
    last_whole: NodeRef | None = None
    largest = record.max_deleted
    for ref in nodes.refs(txn, record, start, end):
        if not ref.live:
            continue
        if start <= ref.master and ref.last <= end and ref.locator is not None:
            going.append((ref, []))  # the whole node, without reading it
            last_whole = ref
            continue
        lp, vector = nodes.listpack(txn, record, ref)
        inside = [e for e in codec().ids(lp, *ref.master, vector) if start <= (e[1], e[2]) <= end]
        if inside:
            going.append((ref, [e[0] for e in inside]))
            largest = max(largest, StreamID(*inside[-1][1:]))
    if last_whole is not None:
        lp, vector = nodes.listpack(txn, record, last_whole)
        top = codec().last_live_id(lp, *last_whole.master, vector)
        if top is not None:
            largest = max(largest, StreamID(*top))
    return remove(txn, record, going, largest, first=start <= record.first)


def delete_ids(
    txn: WriteTxn, stream: bytes, ids: Sequence[StreamID], mode: str = "keep"
) -> list[int]:
    """As XDELEX, per ID: -1 there is none, 1 deleted, 2 still referenced."""
    check_mode(mode)
    record = txn.record_by_name(stream)
    if record is None:
        return [-1] * len(ids)
    lookup = Lookup(txn, record)
    there = {id for id in sorted(ids) if id in lookup}  # so that neighbours are read together
    replies: list[int] = []
    going: set[StreamID] = set()
    groups = txn.groups.of_stream(record.number) if mode == "acked" else []
    for id in ids:
        if groups and id not in going and referenced(txn, groups, id):
            replies.append(2)
        elif id in there and id not in going:
            replies.append(1)
            going.add(id)
        else:
            replies.append(-1)
    if mode == "delete":
        release(txn, record, ids)
    if going:
        delete_entries(txn, record, sorted(going))
    return replies


LIMIT_MAX = 1_000_000
LIMIT_WITHOUT_ENTRIES = 10_000


class TrimRule(NamedTuple):
    """Keep at most ``max_entries`` entries, or those from ``min_id`` on."""

    max_entries: int | None = None
    min_id: StreamID | None = None
    approximate: bool = False
    limit: int | None = None  # entries; None: the default of approximate trimming; 0: no limit
    max_age_ms: int | None = None  # becomes a min_id when the clock is read
    references: str = "keep"  # "delete", "acked": what groups hold of the entries


def check_rule(rule: TrimRule) -> None:
    """Refuse what XTRIM refuses, with its words."""
    given = [rule.max_entries is not None, rule.min_id is not None, rule.max_age_ms is not None]
    if sum(given) > 1:
        raise OptionError(
            "syntax error, MAXLEN and MINID options at the same time are not compatible: "
            "give one of max_entries, min_id and max_age"
        )
    if not any(given):
        if rule.limit is not None:
            raise OptionError(
                "syntax error, LIMIT cannot be used without specifying a trimming strategy"
            )
        raise OptionError("syntax error, XTRIM must be called with a trimming strategy")
    if rule.max_entries is not None and rule.max_entries < 0:
        raise OptionError("The MAXLEN argument must be >= 0.")
    check_mode(rule.references)
    if rule.limit is not None:
        if rule.limit < 0:
            raise OptionError("The LIMIT argument must be >= 0.")
        if not rule.approximate:
            raise OptionError(
                "syntax error, LIMIT cannot be used without the special ~ option: "
                "give approximate=True"
            )


def _limit(txn: WriteTxn, rule: TrimRule) -> int:
    if not rule.approximate:
        return 0
    if rule.limit is not None:
        return rule.limit
    entries = txn.limits.node_max_entries
    return min(100 * entries if entries > 0 else LIMIT_WITHOUT_ENTRIES, LIMIT_MAX)


def trim(txn: WriteTxn, record: StreamRecord, rule: TrimRule) -> int:
    """Trim a stream; how many live entries went."""
    if rule.max_age_ms is not None:
        oldest_ms = max(0, txn.now_ms - rule.max_age_ms)
        rule = rule._replace(min_id=StreamID(oldest_ms, 0), max_age_ms=None)
    if rule.references != "keep":
        return _trim_referenced(txn, record, rule)
    limit = _limit(txn, rule)
    deleted, length = 0, record.length
    whole: tuple[StreamID, StreamID] | None = None  # master IDs of the first and the last that goes
    partial: tuple[NodeRef, tuple[int, ...]] | None = None
    for ref in nodes.refs(txn, record):
        if rule.max_entries is not None and length <= rule.max_entries:
            break
        if limit and deleted + ref.live > limit:
            break
        if _whole(ref, rule, length):
            whole = (ref.master if whole is None else whole[0]), ref.master
            deleted += ref.live
            length -= ref.live
            continue
        if not rule.approximate:
            ordinals = _inside(txn, record, ref, rule, length)
            if ordinals:
                partial = (ref, ordinals)
                deleted += len(ordinals)
                length -= len(ordinals)
        break
    if whole is not None:
        txn.emit(frames.Trim(record.number, *whole[0], *whole[1]))
    if partial is not None:
        ref, ordinals = partial
        version = ref.version or record.open_version
        txn.emit(frames.Tombstone(record.number, *ref.master, version, ordinals))
    txn.counts["trimmed_entries"] += deleted
    if whole is not None or partial is not None:
        state_record(txn, record, length, record.max_deleted, first_gone=True)
    return deleted


def _trim_referenced(txn: WriteTxn, record: StreamRecord, rule: TrimRule) -> int:
    """Trim entry by entry, as Redis does from 8.6 on also with ``~``: groups have a say in each.

    ``acked`` passes over what a group still needs; ``delete`` takes the entry out of every group.
    """
    limit = _limit(txn, rule)
    surplus = record.length if rule.max_entries is None else record.length - rule.max_entries
    if limit:
        surplus = min(surplus, limit)
    whole: list[NodeRef] = []
    partial: list[tuple[NodeRef, tuple[int, ...]]] = []
    going: list[StreamID] = []
    groups = [] if rule.references == "delete" else txn.groups.of_stream(record.number)
    for ref in nodes.refs(txn, record):
        if len(going) >= surplus or (rule.min_id is not None and ref.master >= rule.min_id):
            break
        lp, vector = nodes.listpack(txn, record, ref)
        left = record.length - len(going)
        ordinals: list[int] = []
        for ordinal, ms, seq in codec().ids(lp, *ref.master, vector):
            at = StreamID(ms, seq)
            if len(going) >= surplus or (rule.min_id is not None and at >= rule.min_id):
                break
            if not referenced(txn, groups, at):
                ordinals.append(ordinal)
                going.append(at)
        if len(ordinals) == ref.live and _whole(ref, rule, left):
            whole.append(ref)
        elif ordinals:  # as the peers: emptied entry by entry, it stays
            partial.append((ref, tuple(ordinals)))
    if rule.references == "delete":
        release(txn, record, going)
    for ref, gone in partial:
        version = ref.version or record.open_version
        txn.emit(frames.Tombstone(record.number, *ref.master, version, gone))
    drop_whole(txn, record, whole)
    txn.counts["trimmed_entries"] += len(going)
    if going:
        state_record(txn, record, record.length - len(going), record.max_deleted, first_gone=True)
    return len(going)


def trim_named(txn: WriteTxn, name: bytes, rule: TrimRule | None) -> int:
    """Trim a stream by name; 0 if there is none."""
    record = txn.record_by_name(name)
    return trim(txn, record, rule) if record is not None and rule is not None else 0


def _whole(ref: NodeRef, rule: TrimRule, length: int) -> bool:
    if rule.max_entries is not None:
        return length - ref.live >= rule.max_entries
    assert rule.min_id is not None
    return ref.last < rule.min_id


def _inside(
    txn: WriteTxn, record: StreamRecord, ref: NodeRef, rule: TrimRule, length: int
) -> tuple[int, ...]:
    lp, vector = nodes.listpack(txn, record, ref)
    live = codec().ids(lp, *ref.master, vector)
    if rule.max_entries is not None:
        return tuple(ordinal for ordinal, _, _ in live[: length - rule.max_entries])
    assert rule.min_id is not None
    return tuple(ordinal for ordinal, ms, seq in live if (ms, seq) < rule.min_id)
