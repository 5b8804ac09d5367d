"""What damaged bytes still seem to say: whose entries they were.

Where a frame's checksum does not fit, its head may still be right. It is no evidence, and nothing
is read by it; but together with what was taken out it shows best what is gone.

Invariants: what the new store holds is never said to be gone; where nothing can be said, the bytes
are named, under no stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.format import Kind
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import file_names, log_reader
from logstore.recovery import index_validity
from logstore.recovery.report import Damage, LostEntries, RecoveryReport
from logstore.tuples import NamedTuple

_SEEMS = "by the damaged frame itself"
_BY_LENGTH = "by the number of entries that the stream had"
_UNKNOWN_STREAMS = "it cannot be told of which streams these bytes of the log were"


class _DamagedFrame(NamedTuple):
    """A frame as its damaged bytes have it."""

    stream: int
    first: StreamID
    last: StreamID
    entries: int  # 0: it adds none


def gone(
    source: Engine, made: Engine, damage: list[Damage], known: list[LostEntries]
) -> list[LostEntries]:
    """Entries that are gone by the damaged bytes, beside those that are known already."""
    found: list[LostEntries] = []
    reported = {(each.segment, each.offset) for each in known}
    found += _ends_early(source)
    for each in damage:
        if each.to_offset <= each.from_offset and _is_missing(source, each.segment):
            found.append(LostEntries(b"", ZERO_ID, ZERO_ID, None, each.segment, 0, each.why))
        if each.to_offset <= each.from_offset or (each.segment, each.from_offset) in reported:
            continue
        reported.add((each.segment, each.from_offset))
        found += _of(source, made, each)
    return found


def _is_missing(engine: Engine, segment: int) -> bool:
    return segment > 0 and not engine.fs.exists(file_names.segment(engine.path, segment))


def _ends_early(engine: Engine) -> list[LostEntries]:
    """A log that does not reach what a checkpoint or a clean close recorded of it."""
    recorded = index_validity.promised(
        engine.fs, engine.path, index_validity.read_marker(engine.fs, engine.path)
    )
    number, offset = fmt.position_parts(recorded)
    try:
        size = engine.fs.stat(file_names.segment(engine.path, number)).size_bytes
    except FileNotFoundError:
        return []
    if size >= offset:
        return []
    why = f"the log ends here, and is recorded to have reached {offset}"
    return [LostEntries(b"", ZERO_ID, ZERO_ID, None, number, size, why)]


def by_length(
    source: Engine, report: RecoveryReport, made: Engine, known: list[LostEntries]
) -> list[LostEntries]:
    """Streams of which fewer entries are there, or reported to be gone, than their records say."""
    found: list[LostEntries] = []
    generation = source.generation
    assert generation is not None
    with generation.env.begin() as txn:
        index = IndexTxn(generation, txn)
        for number, (length, oldest) in report.lengths.items():
            record = index.record(number)
            if record is None:
                continue
            count = partial(_there, name=record.name, first=ZERO_ID, last=MAX_ID)
            mine = [each for each in known if each.stream == record.name]
            counted = sum(each.entries or 0 for each in mine if _lived(each, record, oldest))
            missing = length - snapshot.read(made, count) - counted
            if missing > 0:
                at = fmt.position_parts(record.position)
                found.append(
                    LostEntries(record.name, ZERO_ID, record.last, missing, *at, _BY_LENGTH)
                )
    return found


def _lived(gone: LostEntries, record: StreamRecord, oldest: StreamID) -> bool:
    """Whether these entries count for the stream's length; what a damaged frame once added may have
    been deleted or trimmed since."""
    return gone.why != _SEEMS or (gone.first > record.max_deleted and gone.first >= oldest)


def _of(engine: Engine, made: Engine, damage: Damage) -> Iterator[LostEntries]:
    segment, at, end, _ = damage
    try:
        file = engine.fs.open(file_names.segment(engine.path, segment))
    except FileNotFoundError:
        return
    at = max(at, fmt.SEGMENT_HEAD_BYTES)
    try:
        while at < end:
            data = log_reader.readable(file, fmt.FRAME_HEAD_BYTES + fmt.OPEN_BODY.size, at)
            size, seen = _seems(data, end - at)
            name = None if seen is None else _name(engine, seen.stream)
            if size and seen is None:
                at += size
                continue
            if seen is None or name is None:
                yield LostEntries(b"", ZERO_ID, ZERO_ID, None, segment, at, _UNKNOWN_STREAMS)
                return
            count = partial(_there, name=name, first=seen.first, last=seen.last)
            missing = seen.entries - snapshot.read(made, count)
            if missing > 0:
                yield LostEntries(name, seen.first, seen.last, missing, segment, at, _SEEMS)
            at += size
    finally:
        file.close()


def _seems(data: bytes, room: int) -> tuple[int, _DamagedFrame | None]:
    """Bytes of the frame (0: no frame can be seen there), and the entries that it added, if its
    kind has any."""
    head = log_reader.head_of(data)
    if head is None:
        return 0, None
    kind, size = head.kind, fmt.FRAME_HEAD_BYTES + head.payload_bytes
    body = data[fmt.FRAME_HEAD_BYTES :]
    if head.mark != fmt.FRAME_MARK or size > room or kind not in Kind._value2member_map_:
        return 0, None
    if kind in (Kind.NODE, Kind.OPEN) and len(body) >= fmt.NODE_BODY.size:
        stream, ms, seq, last_ms, last_seq, entries = fmt.NODE_BODY.unpack_from(body)
        return size, _DamagedFrame(stream, StreamID(ms, seq), StreamID(last_ms, last_seq), entries)
    if kind == Kind.APPEND and len(body) >= fmt.APPEND_BODY.size:
        stream, ms, seq, entries, _ = fmt.APPEND_BODY.unpack_from(body)
        last = StreamID(ms, seq)
        return size, _DamagedFrame(stream, last, last, entries)
    return size, None


def _name(engine: Engine, number: int) -> bytes | None:
    generation = engine.generation
    assert generation is not None
    with generation.env.begin() as txn:
        record = IndexTxn(generation, txn).record(number)
    return None if record is None else record.name


def _there(view: Snapshot, name: bytes, first: StreamID, last: StreamID) -> int:
    """How many entries of a closed interval the new store holds."""
    record = view.record(name)
    if record is None:
        return 0
    count = 0
    for ref in nodes.refs(view, record, first, last):
        lp, vector = nodes.listpack(view, record, ref)
        ids = codec().ids(lp, *ref.master, vector)
        count += sum(1 for _, *id in ids if first <= StreamID(*id) <= last)
    return count


# An error of a frame ends in its place, which is another one for each node.
_PLACE = re.compile(r" \(segment \d+, offset \d+\)$")
Between = Callable[[bytes, StreamID, StreamID], bool]


def merged(gone: Iterable[LostEntries], between: Between) -> list[LostEntries]:
    """The same losses, those of neighbours as one; each range stands where its first part did.

    ``between`` says whether a stream has an entry above one ID and below another.
    """
    found: list[LostEntries] = []
    last: dict[bytes, int] = {}  # where the last loss of a stream stands
    for each in gone:
        place = last.get(each.stream)
        before = None if place is None else found[place]
        if place is not None and before is not None and _neighbours(before, each, between):
            entries = None
            if before.entries is not None and each.entries is not None:
                entries = before.entries + each.entries
            why = _PLACE.sub("", before.why)
            found[place] = before._replace(
                last=each.last, entries=entries, why=why, offset=min(before.offset, each.offset)
            )
        else:
            last[each.stream] = len(found)
            found.append(each)
    return found


def _neighbours(before: LostEntries, each: LostEntries, between: Between) -> bool:
    return (
        bool(each.stream)  # of unknown streams nothing is known of their IDs
        and before.segment == each.segment
        and before.last < each.first
        and _PLACE.sub("", before.why) == _PLACE.sub("", each.why)
        and not between(each.stream, before.last, each.first)
    )


def has_between(engine: Engine, name: bytes, low: StreamID, high: StreamID) -> bool:
    """Whether a stream has an entry above ``low`` and below ``high``."""
    if low == MAX_ID or low.next() >= high:
        return False

    def look(view: Snapshot) -> bool:
        record = view.record(name)
        if record is None:
            return False
        start, end = low.next(), high.previous()
        for ref in nodes.refs(view, record, start, end):
            if ref.live:
                lp, vector = nodes.listpack(view, record, ref)
                if codec().entries(lp, *ref.master, vector, start, end, 1):
                    return True
        return False

    return snapshot.read(engine, look)
