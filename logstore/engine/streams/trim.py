"""Deciding a trim, as XTRIM does it: head to tail, node by node.

Invariants: LIMIT never splits a node; approximate trimming only drops whole nodes and stops at the
first that must stay; exact trimming marks entries inside one node and stops; max_deleted is never
changed; the stream stays when it gets empty. All is decided before the first frame.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import removal
from logstore.engine.streams.removal import state_record
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef
from logstore.errors import OptionError
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

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
    removal.check_mode(rule.references)
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
            if not removal.referenced(txn, groups, at):
                ordinals.append(ordinal)
                going.append(at)
        if len(ordinals) == ref.live and _whole(ref, rule, left):
            whole.append(ref)
        elif ordinals:  # as the peers: emptied entry by entry, it stays
            partial.append((ref, tuple(ordinals)))
    if rule.references == "delete":
        removal.release(txn, record, going)
    for ref, gone in partial:
        version = ref.version or record.open_version
        txn.emit(frames.Tombstone(record.number, *ref.master, version, gone))
    removal.drop_whole(txn, record, whole)
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
