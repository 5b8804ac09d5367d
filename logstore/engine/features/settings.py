"""Deciding settings of streams and groups.

Invariants: every refusal comes before the first frame; a frame holds all settings of its stream or
group after it; what changes nothing makes no frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.streams import add, idempotency
from logstore.errors import OptionError
from logstore.features.settings import Setting
from logstore.settings import GroupSettings, StreamSettings, stored


def stream(
    txn: WriteTxn, name: bytes, changes: Mapping[str, Any], *, create: bool
) -> StreamSettings:
    """Change settings of a stream; all of them after it. StreamNotFoundError unless ``create``."""
    StreamSettings(**changes).check()
    record = txn.record_by_name(name)
    if record is None:
        record = add.create(txn, name) if create else add.existing(txn, name)
    before = txn.settings.stream(record.number)
    after = before._replace(**changes)
    if after != before:
        txn.emit(Setting(record.number, 0, stored(after)))
    if _remembers(after) != _remembers(before):  # as XCFGSET: another value clears what is known
        idempotency.forget_all(txn, record.number)
    return after


def _remembers(settings: StreamSettings) -> tuple[int, int]:
    return settings.idempotent_duration_s, settings.idempotent_max_ids


def group(
    txn: WriteTxn, stream: bytes, name: bytes, changes: Mapping[str, Any]
) -> GroupSettings[bytes]:
    """Change settings of a group; all of them after it. GroupNotFoundError."""
    record, group_record = admin.existing(txn, stream, name)
    before = txn.settings.group(group_record.number)
    after = before._replace(**changes)
    after.check()
    if after.dead_letter == stream:
        raise OptionError("dead_letter must be another stream: its entries would come back")
    if after != before:
        txn.emit(Setting(record.number, group_record.number, stored(after)))
    return after
