"""Deciding a trim, as XTRIM does it: head to tail, node by node.

Invariants: LIMIT never splits a node; approximate trimming only drops whole nodes and stops at the
first that must stay; exact trimming marks entries inside one node and stops; max_deleted is never
changed; the stream stays when it gets empty. All is decided before the first frame.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.codec import codec
from logstore.engine import nodes
from logstore.engine.nodes import NodeRef
from logstore.engine.state import State
from logstore.errors import OptionError
from logstore.ids import ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames

LIMIT_MAX = 1_000_000
LIMIT_WITHOUT_ENTRIES = 10_000


class TrimRule(NamedTuple):
    """Keep at most ``maxlen`` entries, or those from ``minid`` on."""

    maxlen: int | None = None
    minid: StreamID | None = None
    approximate: bool = False
    limit: int | None = None  # entries; None: the default of approximate trimming; 0: no limit
    max_age_ms: int | None = None  # becomes a minid when the clock is read


def check_rule(rule: TrimRule) -> None:
    """Refuse what XTRIM refuses, with its words."""
    given = [rule.maxlen is not None, rule.minid is not None, rule.max_age_ms is not None]
    if sum(given) > 1:
        raise OptionError(
            "syntax error, MAXLEN and MINID options at the same time are not compatible: "
            "give one of maxlen, minid and max_age"
        )
    if not any(given):
        if rule.limit is not None:
            raise OptionError(
                "syntax error, LIMIT cannot be used without specifying a trimming strategy"
            )
        raise OptionError("syntax error, XTRIM must be called with a trimming strategy")
    if rule.maxlen is not None and rule.maxlen < 0:
        raise OptionError("The MAXLEN argument must be >= 0.")
    if rule.limit is not None:
        if rule.limit < 0:
            raise OptionError("The LIMIT argument must be >= 0.")
        if not rule.approximate:
            raise OptionError(
                "syntax error, LIMIT cannot be used without the special ~ option: "
                "give approximate=True"
            )


def _limit(state: State, rule: TrimRule) -> int:
    if not rule.approximate:
        return 0
    if rule.limit is not None:
        return rule.limit
    entries = state.limits.node_max_entries
    return min(100 * entries if entries > 0 else LIMIT_WITHOUT_ENTRIES, LIMIT_MAX)


def trim(state: State, record: StreamRecord, rule: TrimRule) -> int:
    """Trim a stream; how many live entries went."""
    if rule.max_age_ms is not None:
        oldest_ms = max(0, state.now_ms - rule.max_age_ms)
        rule = rule._replace(minid=StreamID(oldest_ms, 0), max_age_ms=None)
    limit = _limit(state, rule)
    deleted, length = 0, record.length
    whole: list[NodeRef] = []
    partial: tuple[NodeRef, tuple[int, ...]] | None = None
    for ref in nodes.refs(state, record):
        if rule.maxlen is not None and length <= rule.maxlen:
            break
        if limit and deleted + ref.live > limit:
            break
        if _whole(ref, rule, length):
            whole.append(ref)
            deleted += ref.live
            length -= ref.live
            continue
        if not rule.approximate:
            ordinals = _inside(state, record, ref, rule, length)
            if ordinals:
                partial = (ref, ordinals)
                deleted += len(ordinals)
                length -= len(ordinals)
        break
    if whole:
        state.emit(frames.Trim(record.number, *whole[0].master, *whole[-1].master))
    if partial is not None:
        ref, ordinals = partial
        version = ref.version or record.open_version
        state.emit(frames.Tombstone(record.number, *ref.master, version, ordinals))
    if whole or partial is not None:
        state_record(state, record, length, record.max_deleted, first_gone=True)
    return deleted


def trim_named(state: State, name: bytes, rule: TrimRule | None) -> int:
    """Trim a stream by name; 0 if there is none."""
    record = state.record_by_name(name)
    return trim(state, record, rule) if record is not None and rule is not None else 0


def _whole(ref: NodeRef, rule: TrimRule, length: int) -> bool:
    if rule.maxlen is not None:
        return length - ref.live >= rule.maxlen
    assert rule.minid is not None
    return ref.last < rule.minid


def _inside(
    state: State, record: StreamRecord, ref: NodeRef, rule: TrimRule, length: int
) -> tuple[int, ...]:
    lp, vector = nodes.listpack(state, record, ref)
    live = codec().ids(lp, *ref.master, vector)
    if rule.maxlen is not None:
        return tuple(ordinal for ordinal, _, _ in live[: length - rule.maxlen])
    assert rule.minid is not None
    return tuple(ordinal for ordinal, ms, seq in live if (ms, seq) < rule.minid)


def state_record(
    state: State, record: StreamRecord, length: int, max_deleted: StreamID, *, first_gone: bool
) -> None:
    """State the record after entries went; the first ID is looked up again if it is gone."""
    first = record.first
    if length == 0:
        first = ZERO_ID
    elif first_gone:
        first = nodes.first_live(state, record)
    state.emit(frames.Record(
        record.number, length, record.entries_added, *record.last, *first, *max_deleted
    ))  # fmt: skip
