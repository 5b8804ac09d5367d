"""Deciding what makes and removes groups and consumers: the rules are those of XGROUP.

Invariants: every refusal comes before the first frame; a consumer that is not known is made by the
operation that names it.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import add
from logstore.engine.txn.group_view import UNKNOWN, signed
from logstore.errors import GroupExistsError, GroupNotFoundError, OptionError, StreamNotFoundError
from logstore.ids import StreamID
from logstore.index.group_keys import ConsumerRecord, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.options import check_name

NO_KEY = (
    "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the "
    "MKSTREAM option to create an empty stream automatically."
)
MAKE_IT = "; make it with stream.group(name, start='0') or start='$'"
SEEN_MS = 10  # a consumer that reads in vain more often is not recorded each time


def refused(words: bytes, stream: bytes, advice: str = "") -> GroupNotFoundError:
    """The error with these words, in which names are as they are; clients get no advice."""
    message = words.decode("utf-8", "backslashreplace") + advice
    error = GroupNotFoundError(message, stream=stream)
    error.told = words
    return error


def not_found(stream: bytes, group: bytes, where: str = "") -> GroupNotFoundError:
    """The error for a stream or group that is missing, in the words of most commands."""
    words = b"NOGROUP No such key '%b' or consumer group '%b'%b"
    return refused(words % (stream, group, where.encode()), stream, MAKE_IT)


def no_group(stream: bytes, group: bytes) -> GroupNotFoundError:
    """The error for a group that is missing, in the words of XGROUP and XINFO."""
    words = b"NOGROUP No such consumer group '%b' for key name '%b'"
    return refused(words % (group, stream), stream, MAKE_IT)


def existing(
    txn: WriteTxn, stream: bytes, group: bytes, where: str = ""
) -> tuple[StreamRecord, GroupRecord]:
    """A stream and its group, which must be there."""
    record = txn.record_by_name(stream)
    group_record = None if record is None else txn.groups.named(record.number, group)
    if record is None or group_record is None:
        raise not_found(stream, group, where)
    return record, group_record


def maybe(txn: WriteTxn, stream: bytes, group: bytes) -> tuple[StreamRecord, GroupRecord] | None:
    """A stream and its group, or None."""
    record = txn.record_by_name(stream)
    group_record = None if record is None else txn.groups.named(record.number, group)
    return None if record is None or group_record is None else (record, group_record)


def managed(txn: WriteTxn, stream: bytes, group: bytes) -> tuple[StreamRecord, GroupRecord]:
    """As ``existing``, with the errors of XGROUP, which looks for the key first."""
    record = txn.record_by_name(stream)
    if record is None:
        raise StreamNotFoundError(NO_KEY, stream=stream)
    group_record = txn.groups.named(record.number, group)
    if group_record is None:
        raise no_group(stream, group)
    return record, group_record


def _check_read(entries_read: int | None) -> None:
    if entries_read is not None and entries_read < UNKNOWN:
        raise OptionError("value for ENTRIESREAD must be positive or -1")


def _read_given(record: StreamRecord, entries_read: int | None) -> int:
    """The count of entries read, as it was given, but not more than were added, as in Redis 8."""
    return UNKNOWN if entries_read is None else signed(min(entries_read, record.entries_added))


def create(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    start: StreamID | None,
    *,
    entries_read: int | None = None,
    make_stream: bool = True,
) -> None:
    """As XGROUP CREATE; ``start`` None is ``$``. GroupExistsError, StreamNotFoundError."""
    _check_read(entries_read)
    check_name(group, "a group name")
    record = txn.record_by_name(stream)
    if record is None:
        if not make_stream:
            raise StreamNotFoundError(NO_KEY, stream=stream)
        record = add.create(txn, stream)
    elif txn.groups.named(record.number, group) is not None:
        raise GroupExistsError("BUSYGROUP Consumer Group name already exists", stream=stream)
    last = record.last if start is None else start
    txn.emit(frames.Group(record.number, 0, *last, _read_given(record, entries_read), group))


def set_id(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    start: StreamID | None,
    entries_read: int | None = None,
) -> None:
    """As XGROUP SETID; ``start`` None is ``$``."""
    _check_read(entries_read)
    record, group_record = managed(txn, stream, group)
    last = record.last if start is None else start
    read = _read_given(record, entries_read)
    txn.emit(frames.Group(record.number, group_record.number, *last, read, group))


def destroy(txn: WriteTxn, stream: bytes, group: bytes) -> bool:
    """As XGROUP DESTROY: the group with its consumers and pending entries."""
    record = txn.record_by_name(stream)
    if record is None:
        raise StreamNotFoundError(NO_KEY, stream=stream)
    group_record = txn.groups.named(record.number, group)
    if group_record is None:
        return False
    txn.emit(frames.GroupDrop(record.number, group_record.number))
    return True


def consumer(txn: WriteTxn, group: GroupRecord, name: bytes) -> ConsumerRecord:
    """A group's consumer, made if it is not there, seen now."""
    who = txn.groups.consumer_named(group.number, name)
    if who is None:
        check_name(name, "a consumer name")
        number = group.next_consumer
        _seen_now(txn, group, number, -1, name)
        who = txn.groups.consumer(group.number, number)
    assert who is not None
    return who


def _seen_now(txn: WriteTxn, group: GroupRecord, number: int, active_ms: int, name: bytes) -> None:
    txn.emit(frames.Consumer(group.number, number, txn.now_ms, active_ms, 1, name))


def seen(txn: WriteTxn, group: GroupRecord, who: ConsumerRecord) -> None:
    """The consumer tried to read now."""
    if not lately(who.seen_ms, txn.now_ms):
        _seen_now(txn, group, who.number, who.active_ms, who.name)


def lately(seen_ms: int, now_ms: int) -> bool:
    """Whether a consumer was seen so lately that it need not be written down once more."""
    return 0 <= now_ms - seen_ms < SEEN_MS


def create_consumer(txn: WriteTxn, stream: bytes, group: bytes, name: bytes) -> bool:
    """As XGROUP CREATECONSUMER; False if there is one."""
    _, group_record = managed(txn, stream, group)
    if txn.groups.consumer_named(group_record.number, name) is not None:
        return False
    consumer(txn, group_record, name)
    return True


def delete_consumer(txn: WriteTxn, stream: bytes, group: bytes, name: bytes) -> int:
    """As XGROUP DELCONSUMER; how many entries were pending with it."""
    _, group_record = managed(txn, stream, group)
    there = txn.groups.consumer_named(group_record.number, name)
    if there is None:
        return 0
    pending = there.pending
    txn.emit(
        frames.Consumer(group_record.number, there.number, there.seen_ms, there.active_ms, 0, name)
    )
    return pending


__all__ = [
    "NO_KEY",
    "consumer",
    "create",
    "create_consumer",
    "delete_consumer",
    "destroy",
    "existing",
    "maybe",
    "not_found",
    "seen",
    "set_id",
]
