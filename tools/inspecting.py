"""``logstore inspect segment`` and ``frame``: frames as they lie in a file, one with its bytes.

Invariants: it opens no store and no index, takes no lock, and changes nothing; every frame comes
from the one reader of frames, so what is shown as a frame is valid in this store and this place;
it goes on behind bytes that are no valid frame. It does not judge whether those are damage or the
tail of a crash: that is ``check``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from logstore import format as fmt
from logstore.api.entry import Entry
from logstore.codec import codec
from logstore.errors import CorruptFrameError, CorruptionError, UsageError
from logstore.fs import LOCAL, File
from logstore.ids import StreamID
from logstore.log import frame as frames
from logstore.log import names, reader, segment, storefile
from logstore.log.writer import crc_seed
from logstore.recovery.repaired_view import uuid_of_segments
from logstore.tools.output import EXIT_ERROR, Output, entry_line, entry_object, readable

PACKED_ID = struct.Struct(">QQ")
BYTES_A_LINE = 16
INDENT = 48  # of what a frame says, in a line about it
LISTED = 8  # so many members of a list are shown in such a line; --json has all
BYTES_SHOWN = 256  # of one that is no valid frame


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
    """One segment, whatever its file is like. Holds the file open."""

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
        self.end_offset = _end(path, number, self.uuid, self.file_bytes)

    def frames(self) -> Iterator[reader.LogFrame | tuple[int, int, str]]:
        """Frames, and bytes that are no frame: from where to where, and why."""
        offset, commit = fmt.SEGMENT_HEAD_BYTES, 0
        while offset < self.end_offset:
            try:
                scanned = reader.scan(self.file, self.seed, self.number, offset, self.end_offset)
                for found in scanned:
                    offset, commit = found.end_offset, found.commit
                    yield found
            except CorruptFrameError as exc:
                upto = reader.resume_offset(
                    self.file, self.seed, self.number, offset, self.end_offset, commit or None
                )
                yield offset, upto, exc.message
                offset = upto


def _opened(path: Path, number: int) -> File:
    try:
        return LOCAL.open(names.segment(path, number))
    except FileNotFoundError:
        there = ", ".join(map(str, names.segments(LOCAL, path))) or "none"
        raise UsageError(f"there is no segment {number}; there are: {there}") from None


def _end(path: Path, number: int, uuid: bytes, file_bytes: int) -> int:
    """Where the segment ends: as the header of the next main one says, if there is one, and it is
    whole; else with its file."""
    for each in names.segments(LOCAL, path):
        if each <= number:
            continue
        try:
            file = LOCAL.open(names.segment(path, each))
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
        rows = _rows(found)
        for row in rows:
            if row["what"] == "invalid" or "wrong" in row:
                output.exit_code = EXIT_ERROR
            if output.json:
                output.json_object(row)
            else:
                output.words(line_of(row), INDENT)
    finally:
        found.file.close()


def _rows(found: Inspected) -> Iterator[dict[str, Any]]:
    head = {"what": "head", "offset": 0, "end": min(found.file_bytes, fmt.SEGMENT_HEAD_BYTES)}
    if found.head is None:
        yield {**head, "what": "invalid", "why": found.damaged}
    else:
        yield {**head, **found.head._asdict(), "uuid": found.head.uuid.hex()}
    for each in found.frames():
        if isinstance(each, reader.LogFrame):
            yield frame_row(each)
        else:
            yield {"what": "invalid", "offset": each[0], "end": each[1], "why": each[2]}
    if found.end_offset < found.file_bytes:
        yield {"what": "void", "offset": found.end_offset, "end": found.file_bytes}


def frame_row(found: reader.LogFrame) -> dict[str, Any]:
    """What there is to tell of a frame; ``wrong`` if its body is not what its kind has."""
    return {
        "what": "frame",
        "offset": found.offset,
        "end": found.end_offset,
        "kind": kind_name(found.kind),
        "commit": found.commit,
        "ordinal": found.ordinal,
        "last": found.last,
        "durable_upto": found.durable_upto,
        "crc": found.crc,
        **_body(found),
    }


def line_of(row: Mapping[str, Any]) -> str:
    """The row as a line of text."""
    place = f"{row['offset']:>10} {row['end'] - row['offset']:>9}"
    if row["what"] == "frame":
        commit = f"{row['commit']}.{row['ordinal']}{'*' if row['last'] else ''}"
        wrong = f"wrong: {row['wrong']}" if "wrong" in row else ""
        return f"{place}  {row['kind']:12} {commit:12} {wrong or _told(row['body'])}"
    known = {name: row[name] for name in row if name not in {"what", "offset", "end"}}
    return f"{place}  {row['what']:12} {_told(known)}"


# -- a frame --------------------------------------------------------------------------------------
def show_frame(output: Output, path: Path, number: int, offset: int, bytes_max: int) -> None:
    """Write the frame at an offset; if there is no valid one, why, and the bytes as they are."""
    found = Inspected(path, number)
    try:
        if offset >= found.file_bytes:
            raise UsageError(f"segment {number} has {found.file_bytes} bytes: give a lower offset")
        try:
            frame = reader.read_frame(found.file, found.seed, number, offset, found.end_offset)
        except CorruptFrameError as exc:
            output.exit_code = EXIT_ERROR
            raw = found.file.pread(BYTES_SHOWN, offset)
            head = reader.head_of(raw)
            row: dict[str, Any] = {"what": "invalid", "offset": offset, "why": exc.message}
            row["head"] = None if head is None else head._asdict()
            entries: list[Entry[bytes]] = []
        else:
            raw = found.file.pread(fmt.FRAME_HEAD_BYTES + frame.payload_bytes, offset)
            row = frame_row(frame)
            output.exit_code = EXIT_ERROR if "wrong" in row else output.exit_code
            entries = list(_entries(frame))
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
    for line in dump(shown, offset):
        output.line(line)
    if len(shown) < len(raw):
        output.line(f"and {len(raw) - len(shown):,} bytes more: --bytes 0 shows all")


def _entries(found: reader.LogFrame) -> Iterator[Entry[bytes]]:
    """The live entries of a node, or of an open node as it was then."""
    body = _decoded(found)
    if isinstance(body, frames.Node | frames.Open) and body.data is not None:
        master = body.master_ms, body.master_seq
        try:
            codec().validate(body.data, *master)
        except CorruptionError:
            return  # what is wrong with it stands in the row
        for _, ms, seq, flat in codec().entries(body.data, *master):
            yield Entry(StreamID(ms, seq), flat, None)


def dump(raw: bytes, offset: int) -> Iterator[str]:
    """Bytes in lines of 16: where they stand, in hex, as text. The head of a frame is two lines."""
    for at in range(0, len(raw), BYTES_A_LINE):
        part = raw[at : at + BYTES_A_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{offset + at:>10}  {part.hex(' ', 4):{BYTES_A_LINE * 2 + 3}}  {text}"


# -- what a frame says ----------------------------------------------------------------------------
def kind_name(kind: int) -> str:
    """The name of a kind of frame; its number if this version has none for it."""
    return fmt.Kind(kind).name if kind in fmt.Kind._value2member_map_ else str(kind)


def _decoded(found: reader.LogFrame) -> frames.Body | None:
    try:
        return found.body()
    except CorruptionError:
        return None


def _body(found: reader.LogFrame) -> dict[str, Any]:
    """What the frame says, and what is wrong with that, although its checksum is right."""
    try:
        body = found.body()
        if isinstance(body, frames.Node | frames.Open) and body.data is not None:
            codec().validate(body.data, body.master_ms, body.master_seq)
    except CorruptionError as exc:
        return {"body": {}, "wrong": exc.message}
    return {"body": {} if body is None else plain(body)}


def plain(value: Any) -> Any:
    """A body as values of JSON; listpack bytes are told by their number."""
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


def _told(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in values.items())


def _short(value: Any) -> Any:
    """A value for a line: a list by its ends, if it is long."""
    if not isinstance(value, list) or len(value) <= LISTED:
        return value
    return f"[{value[0]}, {value[1]}, ... {value[-1]}] ({len(value):,})"
