"""Settings that change while a store is open: those of streams, of groups, and limits of nodes.

Invariants of streams and groups: every refusal comes before the first frame; a frame holds all
settings of its stream or group after it; what changes nothing makes no frame.

Invariants of the limits of nodes, in crash order: STORE is written anew, whole, with LOCK held;
then this process goes by it. Nodes that are sealed stay as they are. Another process that has the
store open goes by the limits that it read until it opens it anew: nodes of either size are right
for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.groups import admin
from logstore.engine.runtime.engine import Engine
from logstore.engine.streams import add, idempotency, latest_entries
from logstore.errors import OptionError
from logstore.features.setting_rows import Setting
from logstore.log import file_names, storefile
from logstore.options import GroupSettings, StoreLimits, StreamSettings, stored


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
    if after.compact_by != before.compact_by:
        latest_entries.forget(txn, record.number, remembered=before.compact_by is not None)
    return after


def keep_codec(txn: WriteTxn, name: bytes, codec: str | None, *, create: bool) -> bool:
    """Keep the name of a stream's codec; False if there is no stream and it is not to be made.

    A stream whose entries were all deleted may change to another one.
    """
    record = txn.record_by_name(name)
    if record is None and not create:
        return False
    kept = None if record is None else txn.settings.stream(record.number).codec
    if codec is not None and record is not None and record.schema_at:
        raise OptionError(
            "the stream has a schema, which says how its values are written: leave codec out, or "
            "drop the schema with configure(schema=None)"
        )
    if record is not None and record.length:
        check_codec(kept, codec)
    if kept != codec:
        stream(txn, name, {"codec": codec}, create=create)
    return True


def check_codec(kept: str | None, codec: str | None) -> None:
    """OptionError if a stream is to be used with another codec than the one that it has."""
    if kept is not None and codec is None:
        raise OptionError(
            f"the stream has the codec {kept!r}, which its entries are stored by: it stays as long "
            "as there are entries"
        )
    if kept is not None and kept != codec:
        raise OptionError(
            f"the stream has the codec {kept!r}, and not {codec!r}: give that one, or none to have "
            "its values as they are stored"
        )


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


def limit_nodes(engine: Engine, committer: Committer, wanted: dict[str, int]) -> StoreLimits:
    """Set ``node_max_bytes``, ``node_max_entries`` or both, durably; the limits then.

    OptionError for what cannot be, before anything changes; LockTimeoutError; FileSystemError.
    """
    engine.limits._replace(**wanted).check()
    with committer.locked():
        content = storefile.read(engine.fs, engine.path)
        limits = content.limits._replace(**wanted)
        engine.fs.write_atomic(
            engine.path / file_names.STORE, storefile.pack(content._replace(limits=limits))
        )
        engine.limits = limits
    return limits
