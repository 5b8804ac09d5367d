"""What ``logstore inspect`` shows: frames in segments, hints and checkpoints, rows of the index.

Invariants: nothing is changed. A segment, a frame, a hint or a checkpoint is read from its file
alone, without a lock, an index or an open store. Frames come from the one reader of frames, so what
is shown as a frame is valid in this store and place; bytes that are no frame are shown as such,
with what is behind them. Whether those are damage or the tail of a crash is for ``check`` to say. A
file that recovery would ignore is shown as invalid, with the reason. A stream or a node is read
from the store at one moment. The nodes of a stream are shown from their rows alone, so a damaged
node hides no other; a node with a broken layout is shown up to the break.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from logstore import format as fmt
from logstore.api.entry import Entry
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.showing import readable
from logstore.codec import codec, listpack, node
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, CorruptionError, StreamNotFoundError, UsageError
from logstore.fs import LOCAL, File
from logstore.ids import StreamID, parse_end, parse_id
from logstore.index.group_keys import GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord
from logstore.log import checkpoint_file, file_names, hint, log_reader, segment, storefile
from logstore.log import frame as frames
from logstore.log.segment_writer import crc_seed
from logstore.recovery.repaired_view import uuid_of_segments
from logstore.tools import command_options as options
from logstore.tools.command_output import EXIT_ERROR, Output
from logstore.tools.wording import entry_line, entry_object, hex_lines, name_object

PACKED_ID = struct.Struct(">QQ")
INDENT = 48  # of a frame's content in its line
LISTED = 8  # members of a list that are shown in such a line; --json has all
BYTES_SHOWN = 256  # of bytes that are no valid frame


def uuid_of(path: Path) -> bytes:
    """The UUID of a store whose STORE file may be damaged: then that of its segments."""
    try:
        return storefile.read(LOCAL, path).uuid
    except CorruptionError:  # (a newer version, or no store at all, is an error)
        found = uuid_of_segments(LOCAL, path)
        if found is None:
            raise
        return found


class Inspected:
    """One segment with its file open, also a damaged one."""

    def __init__(self, path: Path, number: int) -> None:
        self.number, self.damaged = number, ""
        self.uuid = uuid_of(path)
        self.seed = crc_seed(self.uuid)
        self.file = _opened(path, number)
        self.file_bytes = self.file.size_bytes()
        self.head: segment.SegmentHead | None = None
        try:
            self.head = segment.read_head(self.file, number, self.uuid)
        except CorruptFrameError as exc:
            self.damaged = exc.message
        self.end_offset = _end_offset(path, number, self.uuid, self.file_bytes)

    def frames(self) -> Iterator[log_reader.LogFrame | tuple[int, int, str]]:
        """Frames, and bytes that are no frame: their range, and why."""
        offset, commit = fmt.SEGMENT_HEAD_BYTES, 0
        while offset < self.end_offset:
            try:
                scanned = log_reader.scan(
                    self.file, self.seed, self.number, offset, self.end_offset
                )
                for found in scanned:
                    offset, commit = found.end_offset, found.commit
                    yield found
            except CorruptFrameError as exc:
                upto = log_reader.resume_offset(
                    self.file, self.seed, self.number, offset, self.end_offset, commit or None
                )
                yield offset, upto, exc.message
                offset = upto


def _opened(path: Path, number: int) -> File:
    try:
        return LOCAL.open(file_names.segment(path, number))
    except FileNotFoundError:
        there = ", ".join(map(str, file_names.segments(LOCAL, path))) or "none"
        raise UsageError(f"there is no segment {number}; there are: {there}") from None


def _end_offset(path: Path, number: int, uuid: bytes, file_bytes: int) -> int:
    """Where the segment ends: as the header of the next main one says, if there is one, and it is
    whole; else with its file."""
    for each in file_names.segments(LOCAL, path):
        if each <= number:
            continue
        try:
            file = LOCAL.open(file_names.segment(path, each))
        except FileNotFoundError:  # it was just dropped
            continue
        try:
            head = segment.read_head(file, each, uuid)
        except CorruptFrameError:
            continue
        finally:
            file.close()
        before, end = fmt.position_parts(head.previous_end)
        if head.role == fmt.Role.MAIN and before == number:
            return min(end, file_bytes)
    return file_bytes


# -- a segment ------------------------------------------------------------------------------------
def show_segment(output: Output, path: Path, number: int) -> None:
    """Write the head of a segment and all its frames, also behind damage."""
    found = Inspected(path, number)
    try:
        _show_rows(output, _segment_rows(found))
    finally:
        found.file.close()


def _segment_rows(found: Inspected) -> Iterator[dict[str, Any]]:
    head = {"what": "head", "offset": 0, "end": min(found.file_bytes, fmt.SEGMENT_HEAD_BYTES)}
    if found.head is None:
        yield {**head, "what": "invalid", "why": found.damaged}
    else:
        yield {**head, **found.head._asdict(), "uuid": found.head.uuid.hex()}
    for each in found.frames():
        if isinstance(each, log_reader.LogFrame):
            yield frame_row(each)
        else:
            yield {"what": "invalid", "offset": each[0], "end": each[1], "why": each[2]}
    if found.end_offset < found.file_bytes:
        yield {"what": "void", "offset": found.end_offset, "end": found.file_bytes}


def frame_row(found: log_reader.LogFrame) -> dict[str, Any]:
    """A frame as a row; ``wrong`` says why its body does not fit its kind."""
    row = {"what": "frame", "offset": found.offset, "end": found.end_offset}
    row["kind"] = kind_name(found.kind)
    names_of_head = ("commit", "ordinal", "last", "durable_upto", "crc")
    return {**row, **{name: getattr(found, name) for name in names_of_head}, **_body(found)}


def line_of(row: Mapping[str, Any]) -> str:
    """The row as a line of text."""
    place = f"{row['offset']:>10} {row['end'] - row['offset']:>9}"
    if row["what"] == "frame":
        commit = f"{row['commit']}.{row['ordinal']}{'*' if row['last'] else ''}"
        wrong = f"wrong: {row['wrong']}" if "wrong" in row else ""
        return f"{place}  {row['kind']:12} {commit:12} {wrong or _shortened(row['body'])}"
    known = {name: row[name] for name in row if name not in {"what", "offset", "end"}}
    return f"{place}  {row['what']:12} {_shortened(known)}"


# -- a frame --------------------------------------------------------------------------------------
def show_frame(output: Output, path: Path, number: int, offset: int, bytes_max: int) -> None:
    """Write the frame at an offset; if there is no valid one, the reason and the bytes."""
    found = Inspected(path, number)
    try:
        if offset >= found.file_bytes:
            raise UsageError(f"segment {number} has {found.file_bytes} bytes: give a lower offset")
        try:
            frame = log_reader.read_frame(found.file, found.seed, number, offset, found.end_offset)
        except CorruptFrameError as exc:
            output.exit_code = EXIT_ERROR
            raw = found.file.pread(BYTES_SHOWN, offset)
            head = log_reader.head_of(raw)
            row: dict[str, Any] = {"what": "invalid", "offset": offset, "why": exc.message}
            row["head"] = None if head is None else head._asdict()
            entries = []
        else:
            raw = found.file.pread(fmt.FRAME_HEAD_BYTES + frame.payload_bytes, offset)
            row = frame_row(frame)
            entries = [] if "wrong" in row else list(_frame_entries(frame))
            output.exit_code = EXIT_ERROR if "wrong" in row else output.exit_code
    finally:
        found.file.close()
    if output.json:
        entry_objects = [entry_object(each) for each in entries]
        output.json_object({**row, "entries": entry_objects, "bytes": raw.hex()})
        return
    output.report(row, raw=True)
    for each in entries:
        output.line(entry_line(each))
    shown = raw[: bytes_max or None]
    for line in hex_lines(shown, offset):
        output.line(line)
    if len(shown) < len(raw):
        output.line(f"and {len(raw) - len(shown):,} bytes more: --bytes 0 shows all")


def _frame_entries(found: log_reader.LogFrame) -> Iterator[Entry[bytes]]:
    """The live entries of a sealed node, or of an open node at that frame."""
    body = found.body()
    if isinstance(body, frames.Node | frames.Open) and body.data is not None:
        for _, ms, seq, flat in codec().entries(body.data, body.master_ms, body.master_seq):
            yield Entry(StreamID(ms, seq), flat, None)


# -- what a frame says ----------------------------------------------------------------------------
def kind_name(kind: int) -> str:
    """The name of a kind of frame; its number if this version does not know it."""
    return fmt.Kind(kind).name if kind in fmt.Kind._value2member_map_ else str(kind)


def _body(found: log_reader.LogFrame) -> dict[str, Any]:
    """The body of a frame, or why it cannot be read although its checksum is right."""
    try:
        body = found.body()
        if isinstance(body, frames.Node | frames.Open) and body.data is not None:
            codec().validate(body.data, body.master_ms, body.master_seq)
    except CorruptionError as exc:
        return {"body": {}, "wrong": exc.message}
    return {"body": {} if body is None else plain(body)}


def plain(value: Any) -> Any:
    """A body as values of JSON; of listpack bytes only how many there are."""
    if hasattr(value, "_asdict"):
        named = value._asdict()
        data, ids = named.pop("data", None), named.get("ids")
        if isinstance(ids, bytes) and not len(ids) % PACKED_ID.size:  # of groups: packed
            named["ids"] = [str(StreamID(*id)) for id in PACKED_ID.iter_unpack(ids)]
        shown = {name: plain(each) for name, each in named.items()}
        return shown if data is None else {**shown, "data_bytes": len(data)}
    if isinstance(value, bytes):
        return readable(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _shortened(values: Mapping[str, Any]) -> str:
    """Names and values for a line; of a long list its ends."""
    shown = dict(values)
    for name, value in values.items():
        if isinstance(value, list) and len(value) > LISTED:
            shown[name] = f"[{value[0]}, {value[1]}, ... {value[-1]}] ({len(value):,})"
    return " ".join(f"{name}={value}" for name, value in shown.items())


# -- hints and checkpoints ------------------------------------------------------------------------
def show_hint(output: Output, path: Path, number: int) -> None:
    """Write the hint of a segment."""
    if not LOCAL.exists(file_names.hint(path, number)):
        there = ", ".join(map(str, file_names.hints(LOCAL, path))) or "none"
        raise UsageError(f"segment {number} has no hint; there are: {there}")
    found = hint.inspected(LOCAL, path, uuid_of(path), number)
    if found is None:
        rows = [_invalid_file(file_names.hint(path, number), "it is passed over")]
    else:
        head = {"what": "head", "offset": 0, "end": fmt.HINT_HEAD.size}
        head |= {"segment_bytes": found.segment_bytes, "joined": found.joined}
        rows = [{**head, "frames": len(found.frames)}, *map(frame_row, found.frames)]
    _show_rows(output, rows)


def show_checkpoint(output: Output, path: Path, position: int | None) -> None:
    """Write the checkpoint of a position, or the newest."""
    positions = file_names.checkpoints(LOCAL, path)
    if not positions:
        raise UsageError("the store has no checkpoint: 'logstore checkpoint' takes one")
    if position not in (None, *positions):
        there = ", ".join(map(str, positions))
        raise UsageError(f"there is no such checkpoint; there are: {there}")
    chosen = position or positions[-1]
    if position is None and len(positions) > 1 and not output.json:
        output.words(f"older ones: {', '.join(map(str, positions[:-1]))}")
    try:
        head, chunks = checkpoint_file.read(LOCAL, path, uuid_of(path), chosen)
    except CorruptionError as exc:
        _show_rows(output, [_invalid_file(file_names.checkpoint(path, chosen), exc.message)])
        return
    fits = checkpoint_file.fits_log(LOCAL, path, uuid_of(path), head)
    segment, offset = fmt.position_parts(head.position)
    shown = {**head._asdict(), "segment": segment, "offset": offset, "fits_the_log": fits}
    output.exit_code = 0 if fits else EXIT_ERROR
    if output.json:
        output.json_object({"what": "head", **shown})
        for row in _chunks(chunks):
            output.json_object(row)
        return
    _report(output, shown)
    output.line("")
    rows = ([row["number"], row["kind"], row["rows"]] for row in _chunks(chunks))
    output.table(("chunk", "kind", "rows"), rows)


def _invalid_file(path: Path, why: str) -> dict[str, Any]:
    return {"what": "invalid", "offset": 0, "end": LOCAL.size_bytes(path), "why": why}


def _chunks(chunks: list[Any]) -> Iterator[dict[str, Any]]:
    """Each chunk: its kind, its number of rows, and its other values."""
    for number, chunk in enumerate(chunks):
        row = {"what": "chunk", "number": number, "kind": chunk.get("kind", "")}
        beside = {name: plain(chunk[name]) for name in chunk if name not in {"kind", "rows"}}
        yield {**row, "rows": len(chunk.get("rows", ())), **beside}


def _show_rows(output: Output, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as objects or lines; an invalid row sets the exit code."""
    for row in rows:
        if row["what"] == "invalid" or "wrong" in row:
            output.exit_code = EXIT_ERROR
        if output.json:
            output.json_object(row)
        else:
            output.words(line_of(row), INDENT)


# -- a stream -------------------------------------------------------------------------------------
ENTRY_INDENT = 35  # of an entry's fields in its line


def show_stream(output: Output, path: Path, name: str, count: int) -> None:
    """Write what the index has of a stream, its newest nodes first."""
    with options.reading(path) as store:
        raw = options.existing(store, name).name
        rows = opened_of(store).view(partial(_stream_rows, name=raw, count=count))
    if output.json:
        _show_rows(output, rows)
        return
    record, *others = rows
    _report(output, record)
    for what, head in HEADS.items():
        of_it = [row for row in others if row["what"] == what]
        if of_it:
            output.line("")
            said = [column.replace("payload_", "").replace("_", " ") for column in head]
            cells = [[_typed(row, column) for column in head] for row in of_it]
            output.table(said, cells, narrow=NARROW[what])


def _report(output: Output, row: dict[str, Any]) -> None:
    output.report({key: _typed(row, key) for key in row if key != "what"}, raw=True)


def _typed(row: dict[str, Any], name: str) -> Any:
    """A value for a table; one that users type again, such as an offset, without commas."""
    value = row.get(name, "")
    return str(value) if name in TYPED else value


TYPED = {"segment", "offset", "position", "number", "last_frame_offset", "last_crc", "expires_ms"}
HEADS = {
    "node": ("master", "last", "segment", "offset", "payload_bytes", "entries", "live"),
    "group": ("group", "number", "last", "entries_read", "pending", "runs", "consumers"),
}


# What is shown of a ``StreamRecord`` beside its name.
OF_RECORD = (
    "entries_added", "expires_ms", "first", "last", "length", "max_deleted", "node_bytes", "nodes",
    "number", "open_master", "open_version", "position",
)  # fmt: skip
NARROW = {"node": ("last", "entries", "segment"), "group": ("runs", "number", "entries read")}


def _stream_rows(view: Snapshot, name: bytes, count: int) -> list[dict[str, Any]]:
    record = _stream_record(view, name)
    found = {name: getattr(record, name) for name in OF_RECORD}
    row: dict[str, Any] = {"what": "record", **name_object(name), **found}
    for key, value in found.items():
        if isinstance(value, StreamID):
            row[key] = str(value)
    for key in ("position", "open_version"):
        row[key] = _position(found[key])
    refs = nodes.refs_reverse(view, record)
    some = list(islice(refs, count or None))
    rows = [_node_row(view, record, ref) for ref in reversed(some)]
    groups = view.index.groups
    return [row, *rows, *(_group_row(groups, group) for group in groups.of_stream(record.number))]


def _group_row(groups: GroupTxn, group: GroupRecord) -> dict[str, Any]:
    row: dict[str, Any] = {"what": "group", "group": plain_text(group.name)}
    row["last"] = str(group.last)
    row |= {
        name: getattr(group, name) for name in ("number", "entries_read", "pending", "consumers")
    }
    row["runs"] = sum(1 for _ in groups.runs(group.number))
    row["position"] = _position(group.position)
    return row


def _stream_record(view: Snapshot, name: bytes) -> StreamRecord:
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such stream: it went meanwhile", stream=name)
    return record


def _position(position: int) -> str:
    """A position as it is typed: segment and offset; empty: there is none."""
    return "{} {}".format(*fmt.position_parts(position)) if position else ""


def _node_row(view: Snapshot, record: StreamRecord, ref: nodes.NodeRef) -> dict[str, Any]:
    """A node as the index has it; an open node has the position of its last whole frame."""
    row: dict[str, Any] = {"what": "node", "master": str(ref.master), "last": str(ref.last)}
    row["open"] = ref.locator is None
    row["segment"], row["offset"] = fmt.position_parts(ref.version or record.open_version)
    if ref.locator is not None:
        row["payload_bytes"], row["entries"] = ref.locator.payload_bytes, ref.locator.entries
    else:
        opened = view.open_node(record.number)
        row["payload_bytes"] = 0 if opened is None else nodes.open_bytes(opened)
        row["entries"] = ref.live + ref.deleted
        row["frames"] = [] if opened is None else [_position(run.position) for run in opened.runs]
    row["live"] = ref.live
    return row


# -- a node ---------------------------------------------------------------------------------------
def show_node(output: Output, path: Path, name: str, id: str) -> None:
    """Write the node that has an ID, or would, and each entry with its offset."""
    wanted = parse_end(id)
    with options.reading(path) as store:
        raw = options.existing(store, name).name
        row, lp, vector = opened_of(store).view(partial(_node_of, name=raw, wanted=wanted))
    shown = list(_node_elements(lp, vector, parse_id(row["master"])))
    if "wrong" in shown[-1]:
        output.exit_code = EXIT_ERROR
    if output.json:
        entries = [
            {**each, "entry": entry_object(each["entry"])} if "entry" in each else each
            for each in shown
        ]
        output.json_object({**row, "listpack_bytes": len(lp), "elements": entries})
        return
    _report(output, row)
    output.line("")
    for each in shown:
        output.words(_element_line(each), ENTRY_INDENT)


def _node_of(view: Snapshot, name: bytes, wanted: StreamID) -> tuple[dict[str, Any], bytes, bytes]:
    record = _stream_record(view, name)
    ref = next(nodes.refs_reverse(view, record, end=wanted), None)
    if ref is None:
        raise UsageError(f"the stream's first node begins behind {wanted}: give a higher ID")
    lp, vector = nodes.listpack(view, record, ref)
    return _node_row(view, record, ref), bytes(lp), bytes(vector)


def _node_elements(lp: bytes, vector: bytes, master: StreamID) -> Iterator[dict[str, Any]]:
    """The head and the entries of a node, each with its range; an error comes last."""
    at = 0
    try:
        head = node.read_master(lp)
        yield {
            "what": "master",
            "offset": listpack.HEADER_BYTES,
            "end": head.first,
            "live": head.live,
            "deleted": head.deleted,
            "fields": [plain_text(field) for field in head.fields],
        }
        at = head.first
        for entry in node.forward(lp, head):
            flat = node.read_flat(lp, entry, head)
            found = Entry(StreamID(*entry.id(*master)), flat, None)
            yield {
                "what": "entry",
                "offset": entry.at,
                "end": entry.after,
                "ordinal": entry.ordinal,
                "deleted": not node.is_live(entry, vector),
                "same_fields": bool(entry.flags & node.SAME_FIELDS),
                "entry": found,
            }
            at = entry.after
        yield {"what": "end", "offset": at, "end": len(lp)}
    except CorruptionError as exc:
        yield {"what": "invalid", "offset": at, "end": len(lp), "wrong": exc.message}


def _element_line(row: dict[str, Any]) -> str:
    if "entry" not in row:
        return line_of(row)
    marks = "".join(
        mark if row[name] else "-" for name, mark in (("deleted", "D"), ("same_fields", "S"))
    )
    size = row["end"] - row["offset"]
    return f"{row['offset']:>10} {size:>9}  entry {marks}     {entry_line(row['entry'])}"
