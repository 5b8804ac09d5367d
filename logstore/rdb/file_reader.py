"""Reading RDB files: the streams in them, one after the other; everything else is skipped.

A file may be compressed as a whole. Valkey 9.2 puts it into an envelope: seven bytes (``VCS``, its
version 1, the codec, 0, the kind of its content), then one frame of the codec, LZ4 or Zstandard, to
the end of the file. The layout is that of the page about it in Valkey's sources; Zstandard's number
is that of its proposal (valkey#3798).

Invariants: memory holds one chunk, and the nodes that the caller keeps. The file's CRC stands at
its end: only when ``streams`` has ended is it known that the file is whole, so a caller that must
not take half a file calls ``verify`` first. Of a value that is no stream nothing is kept; a type
whose layout is not known is refused, since its end is not known. A frame is decompressed in pieces
of some MiB at most, whatever it says of its size, and to at most ``RATIO_MAX`` times its bytes,
beyond ``FREE_BYTES``. A frame that is damaged or cut off, and bytes behind it, are an
InvalidPayloadError.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.codec import ID
from logstore.codec.node_batch import NodeBatch
from logstore.errors import InvalidPayloadError, TooLargeError
from logstore.loading import needing
from logstore.rdb import codes, stream_reader
from logstore.rdb.rdb_reader import Fill, Reader
from logstore.rdb.value import Node, StreamInfoValue, StreamValue

_REDIS, _VALKEY, _HEAD_BYTES = b"REDIS", b"VALKEY", 9
_SLOT_INFO, _FUNCTION, _MODULE_AUX = 244, 245, 247
_IDLE, _FREQUENCY, _AUX, _RESIZE = 248, 249, 250, 251
_EXPIRES_MS, _EXPIRES_S, _SELECT, _END = 252, 253, 254, 255
_OPCODE_MIN = 240  # codes from here on are no types of values
_AUX_KEPT_BYTES, _AUX_KEPT = 1024, 64
_CRC_SINCE = 5


class StreamKey:
    """One stream of a file. Its parts are read in order: ``nodes``, then ``info``."""

    def __init__(
        self,
        reader: Reader,
        kind: int,
        database: int,
        name: bytes,
        expires_ms: int | None,
        schema: bytes,
    ) -> None:
        self.database = database
        self.schema = schema  # its text; empty: none was written
        self.name = name
        self.expires_ms = expires_ms  # unix ms; None: never
        self.kind = kind
        self._reader = reader
        self._nodes = stream_reader.NodeReader(reader)
        self._info: StreamInfoValue | None = None

    @property
    def failed(self) -> bool:
        """Whether the file cannot be read on after the error."""
        return self._reader.failed

    def nodes(self) -> Iterator[Node]:
        """The nodes that were not read yet."""
        return self._nodes

    def batch(self, top: ID) -> NodeBatch:
        """The next nodes, as ``NodeReader.batch``."""
        return self._nodes.batch(top)

    def info(self) -> StreamInfoValue:
        """All but the nodes; nodes that were not read are skipped."""
        if self._info is None:
            for _ in self.nodes():
                pass
            self._info = stream_reader.info(self._reader, self.kind, self._nodes.count)
        return self._info

    def value(self, most_bytes: int) -> StreamValue:
        """The whole stream in memory; TooLargeError if its nodes have more than ``most_bytes``."""
        found: list[Node] = []
        size = 0
        for node in self.nodes():
            size += len(node[1])
            if size > most_bytes:
                raise TooLargeError(f"the stream has more than {most_bytes} bytes of nodes")
            found.append(node)
        return StreamValue(found, self.info())


def plain(fill: Fill) -> Fill:
    """The content of an RDB file, without its envelope if it has one."""
    first = b""
    while len(first) < len(ENVELOPE_MAGIC) and (more := fill(len(ENVELOPE_MAGIC))):
        first += more
    pieces = iter((first,))

    def again(size: int) -> bytes:
        return next(pieces, None) or fill(size)

    return unwrapped(again) if first.startswith(ENVELOPE_MAGIC) else again


class FileReader:
    """An RDB file that ``fill`` gives in pieces (b"": its end), in an envelope or not."""

    def __init__(self, fill: Fill) -> None:
        self._reader = reader = Reader(b"", plain(fill))
        head = reader.take(_HEAD_BYTES)
        valkey = head.startswith(_VALKEY)
        digits = head[len(_VALKEY if valkey else _REDIS) :]
        if not (valkey or head.startswith(_REDIS)) or not digits.isdigit():
            raise InvalidPayloadError("this is no RDB file: it does not begin with REDIS or VALKEY")
        self.version = int(digits)
        if not self.version or valkey != (self.version >= codes.VALKEY_VERSION):
            raise InvalidPayloadError(
                f"there is no RDB file of {'VALKEY' if valkey else 'REDIS'} with version "
                f"{self.version}: those of Valkey begin with {codes.VALKEY_VERSION}"
            )
        self.newer = codes.newer(self.version)  # a note about a version that is not known, or None
        self.notes: dict[bytes, bytes] = {}  # what the server wrote about itself
        self.skipped: Counter[str] = Counter()  # keys that are no streams, by type
        self._database = 0
        self._expires_ms: int | None = None
        self._schema = b""  # of the next key

    @property
    def offset(self) -> int:
        """How many bytes were read."""
        return self._reader.offset

    def streams(self) -> Iterator[StreamKey]:
        """The streams in the order of the file; InvalidPayloadError, also at its end.

        What was not read of a stream is skipped when the next one is asked for.
        """
        reader = self._reader
        while (kind := reader.byte()) != _END:
            reader.new_value()
            if kind >= _OPCODE_MIN:
                self._opcode(kind)
                continue
            name = reader.string()
            expires_ms, self._expires_ms = self._expires_ms, None
            schema, self._schema = self._schema, b""
            if codes.readable(kind, self.version):
                key = StreamKey(reader, kind, self._database, name, expires_ms, schema)
                yield key
                key.info()
            else:
                _skip_value(reader, kind, self.version)
                self.skipped[_type_name(kind)] += 1
        self._end()

    def _opcode(self, opcode: int) -> None:
        reader = self._reader
        if opcode == _SELECT:
            self._database = reader.length()
        elif opcode == _RESIZE:
            self._lengths(2)
        elif opcode == _EXPIRES_MS:
            self._expires_ms = reader.i64()
        elif opcode == _EXPIRES_S:
            self._expires_ms = 1000 * int.from_bytes(reader.take(4), "little", signed=True)
        elif opcode == _IDLE:
            reader.length()
        elif opcode == _FREQUENCY:
            reader.byte()
        elif opcode == _FUNCTION:
            reader.skip_string()
        elif opcode == _SLOT_INFO:
            self._lengths(3)
        elif opcode == _AUX:
            name = reader.string()
            if name == codes.SCHEMA_NOTE:
                self._schema = reader.string(codes.SCHEMA_MAX_BYTES)
            else:
                self._note(name, reader.string())
        elif opcode == _MODULE_AUX:
            reader.length()
            _skip_module(reader)
        else:
            raise reader.error(f"the part {opcode} of an RDB file is not known")

    def _lengths(self, count: int) -> None:
        for _ in range(count):
            self._reader.length()

    def _note(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) <= _AUX_KEPT_BYTES and len(self.notes) < _AUX_KEPT:
            self.notes[name] = value

    def _end(self) -> None:
        reader = self._reader
        if self.version >= _CRC_SINCE:
            found = reader.crc
            stored = int.from_bytes(reader.take(8), "little")
            if stored not in (0, found):  # 0: the server was set to write none
                raise reader.error("the checksum of the file is wrong")
        if not reader.ended():
            raise reader.error("something stands behind the end of the file")


def verify(fill: Fill) -> int:
    """Read a whole file and keep nothing; how many streams it has. InvalidPayloadError."""
    return sum(1 for _ in FileReader(fill).streams())


# -- Values that are no streams -------------------------------------------------------------------
_NAMES: Final = {
    0: "string",
    1: "list",
    2: "set",
    3: "sorted set",
    4: "hash",
    5: "sorted set",
    6: "module",
    7: "module",
    9: "hash",
    10: "list",
    11: "set",
    12: "sorted set",
    13: "hash",
    14: "list",
    15: "stream",
    16: "hash",
    17: "sorted set",
    18: "list",
    19: "stream",
    20: "set",
    21: "stream",
    22: "hash",
    23: "hash",
    24: "hash",
    25: "hash",
    26: "stream",
    27: "stream",
}
_SCORE_MAX_BYTES = 252  # 253 to 255 are NaN and the infinities, without bytes
_MODULE_END, _MODULE_FLOAT, _MODULE_DOUBLE, _MODULE_STRING = 0, 3, 4, 5
_MODULE_NUMBERS = (1, 2)


def _type_name(kind: int) -> str:
    """The name of a type."""
    return _NAMES.get(kind, f"type {kind}")


def _skip_value(reader: Reader, kind: int, version: int) -> None:
    """Skip a value; InvalidPayloadError for a type that is not known."""
    step = (
        _SKIPPED_VALKEY.get(kind) if version >= codes.VALKEY_VERSION else _SKIPPED_REDIS.get(kind)
    )
    step = step or _SKIPPED.get(kind)
    if step is None:
        raise reader.error(
            f"a value of type {kind} ({_type_name(kind)}), whose layout is not known: remove keys "
            "of that kind from the server before it saves"
        )
    step(reader)


def _skip_module(reader: Reader) -> None:
    """Skip the data of a module, up to its end mark."""
    while (opcode := reader.length()) != _MODULE_END:
        if opcode in _MODULE_NUMBERS:
            reader.length()
        elif opcode == _MODULE_FLOAT:
            reader.skip(4)
        elif opcode == _MODULE_DOUBLE:
            reader.skip(8)
        elif opcode == _MODULE_STRING:
            reader.skip_string()
        else:
            raise reader.error(f"a module wrote the unknown mark {opcode}")


def _strings(each: int) -> Callable[[Reader], None]:
    """Skip a counted list, with so many strings for each item."""

    def step(reader: Reader) -> None:
        left = reader.length()
        while left:
            for _ in range(each):
                reader.skip_string()
            left -= 1

    return step


def _old_scores(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        size = reader.byte()
        reader.skip(size if size <= _SCORE_MAX_BYTES else 0)
        left -= 1


def _scores(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        reader.skip(8)
        left -= 1


def _quicklist(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.length()
        reader.skip_string()
        left -= 1


def _expiring_hash(reader: Reader) -> None:
    reader.skip(8)
    left = reader.length()
    while left:
        reader.length()
        reader.skip_string()
        reader.skip_string()
        left -= 1


def _expiring_listpack(reader: Reader) -> None:
    reader.skip(8)
    reader.skip_string()


def _valkey_hash(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        reader.skip_string()
        reader.skip(8)
        left -= 1


def _module(reader: Reader) -> None:
    reader.length()
    _skip_module(reader)


_Step = Callable[[Reader], None]
_SKIPPED: Final[dict[int, _Step]] = {
    **dict.fromkeys((0, 9, 10, 11, 12, 13, 16, 17, 20), Reader.skip_string),
    **dict.fromkeys((1, 2, 14), _strings(1)),
    3: _old_scores,
    4: _strings(2),
    5: _scores,
    7: _module,
    18: _quicklist,
}
_SKIPPED_REDIS: Final[dict[int, _Step]] = {24: _expiring_hash, 25: _expiring_listpack}
_SKIPPED_VALKEY: Final[dict[int, _Step]] = {22: _valkey_hash}


ENVELOPE_MAGIC: Final = b"VCS"
ENVELOPE_HEAD_BYTES: Final = 7
_ENVELOPE_VERSION, _RDB = 1, 1
_LZ4, _ZSTANDARD = 1, 2
PIECE_BYTES = 256 * 1024
READ_BYTES = 64 * 1024
SIP_BYTES = 512  # of Zstandard that are read at once: four of them may become 128 KiB
RATIO_MAX = 1000  # even repetitive files are seldom compressed to less than a hundredth
FREE_BYTES = 64 << 20
WINDOW_MAX_BYTES = 128 << 20  # the largest window of a Zstandard frame


def _damaged_envelope(why: object) -> InvalidPayloadError:
    return InvalidPayloadError(f"Bad data format: the compressed RDB file is damaged: {why}")


def unwrapped(fill: Fill) -> Fill:
    """The content of an envelope, piece by piece, as ``fill`` gives the envelope.

    InvalidPayloadError, here or later; UsageError if the codec's package is not installed.
    """
    source = _EnvelopeBytes(fill)
    head = source.read(ENVELOPE_HEAD_BYTES)
    if len(head) < ENVELOPE_HEAD_BYTES or not head.startswith(ENVELOPE_MAGIC):
        raise _damaged_envelope("its head is cut off")
    version, codec, reserved, kind = head[len(ENVELOPE_MAGIC) :]
    if (version, reserved, kind) != (_ENVELOPE_VERSION, 0, _RDB) or codec not in _CODECS:
        raise InvalidPayloadError(
            f"a compressed RDB file with the head {head.hex(' ')} is not known: let the server "
            "write it with rdbcompression lz4, or yes"
        )
    pieces = _limited(_CODECS[codec](source), source)
    return lambda _size: next(pieces, b"")


class _EnvelopeBytes:
    """The bytes of the envelope, counted."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._held, self._at = b"", 0
        self.taken = 0

    def read(self, size: int = READ_BYTES) -> bytes:
        """The next bytes: ``size`` of them, or fewer at the end."""
        while len(self._held) - self._at < size and (more := self._fill(size)):
            self._held, self._at = self._held[self._at :] + more, 0
        found = self._held[self._at : self._at + size]
        self._at += len(found)
        self.taken += len(found)
        return found


def _limited(pieces: Iterator[bytes], source: _EnvelopeBytes) -> Iterator[bytes]:
    """The pieces; InvalidPayloadError if they are far more than their compressed bytes can hold."""
    made = 0
    for piece in pieces:
        made += len(piece)
        if made > FREE_BYTES + RATIO_MAX * source.taken:
            raise InvalidPayloadError(
                f"{source.taken} bytes of a compressed RDB file became {made}, over {RATIO_MAX} "
                "times as many: let its server write it with rdbcompression yes"
            )
        yield piece


def _lz4(source: _EnvelopeBytes) -> Iterator[bytes]:
    """The content of an LZ4 frame; its checksums, if it has some, are checked."""
    frame: Any = needing("rdb", lambda: importlib.import_module("lz4.frame"))
    decompressor = frame.LZ4FrameDecompressor()
    data = source.read()
    while not decompressor.eof:
        if not data and decompressor.needs_input:
            raise _damaged_envelope("it is cut off")
        try:
            piece = decompressor.decompress(data, max_length=PIECE_BYTES)
        except RuntimeError as exc:
            raise _damaged_envelope(exc) from exc
        data = b""
        if piece:
            yield piece
        if decompressor.needs_input and not decompressor.eof:
            data = source.read()
    _check_end(decompressor.unused_data or b"", source)


def _zstandard(source: _EnvelopeBytes) -> Iterator[bytes]:
    """The content of a Zstandard frame; its checksum, if it has one, is checked."""
    zstandard: Any = needing("rdb", lambda: importlib.import_module("zstandard"))
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX_BYTES)
    frame = decompressor.decompressobj(read_across_frames=False)
    while not frame.eof:
        data = source.read(SIP_BYTES)
        if not data:
            raise _damaged_envelope("it is cut off")
        try:
            piece = frame.decompress(data)
        except zstandard.ZstdError as exc:
            raise _damaged_envelope(exc) from exc
        if piece:
            yield piece
    _check_end(frame.unused_data, source)


def _check_end(behind: bytes, source: _EnvelopeBytes) -> None:
    """InvalidPayloadError for bytes behind the frame."""
    if behind or source.read(1):
        raise _damaged_envelope("something stands behind its end")


_CODECS: Final[dict[int, Callable[[_EnvelopeBytes], Iterator[bytes]]]] = {
    _LZ4: _lz4,
    _ZSTANDARD: _zstandard,
}
