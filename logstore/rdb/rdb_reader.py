"""Reading lengths and strings of RDB, from bytes in memory or as they come in.

Invariants: memory is taken for bytes that are there, never for a length that is only announced. A
string that announces more than ``STRING_MAX_BYTES``, or more than its caller takes, is refused
before it is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from logstore.codec import ID, codec
from logstore.codec.node_batch import NodeBatch
from logstore.errors import CorruptNodeError, InvalidPayloadError
from logstore.ids import StreamID
from logstore.rdb.codes import crc64

CHUNK_BYTES = 1 << 20
STRING_MAX_BYTES = 1 << 30  # a node is no longer, and servers take 512 MiB at most
EXPANDED_MAX_BYTES = 1 << 30  # of all compressed strings of one value, expanded
Fill = Callable[[int], bytes]
_SHORT = 1 << 6  # a length below it is one byte
_LZF = 3  # 0, 1, 2: integers of 8, 16, 32 bits
_INTEGERS = {0: struct.Struct("<b"), 1: struct.Struct("<h"), 2: struct.Struct("<i")}
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_I64 = struct.Struct("<q")


def signed(found: int) -> int:
    """The signed number that a length of 64 bits stands for."""
    return found - (1 << 64) if found >> 63 else found


class Reader:
    """A place in RDB bytes: ``data``, and what ``fill`` gives behind it (b"": the end).

    All methods raise InvalidPayloadError where the bytes end too early.
    """

    __slots__ = (
        "_at",
        "_before",
        "_crc",
        "_data",
        "_expanded",
        "_fill",
        "_kept",
        "_kept_from",
        "failed",
        "too_long",
    )

    def __init__(self, data: bytes = b"", fill: Fill | None = None, *, start: int = 0) -> None:
        self._data = data
        self._at = start
        self._fill = fill
        self._before = 0  # bytes in front of ``data``
        self._crc = 0  # of those bytes
        self._expanded = 0
        self._kept: list[bytes] | None = None  # what was taken since ``keep``, up to ``_kept_from``
        self._kept_from = 0
        self.failed = False  # after an error: where the next value begins is not known
        self.too_long: str | None = None  # the error for a name that was skipped: see ``name``

    @property
    def offset(self) -> int:
        """How many bytes were taken."""
        return self._before + self._at

    @property
    def left(self) -> int | None:
        """How many bytes are left; None: not known, since more may come."""
        return len(self._data) - self._at if self._fill is None else None

    @property
    def crc(self) -> int:
        """The CRC-64 of the bytes taken."""
        return crc64(memoryview(self._data)[: self._at], self._crc)

    def new_value(self) -> None:
        """Begin another value: count expanded bytes anew."""
        self._expanded = 0

    def error(self, why: str) -> InvalidPayloadError:
        """An error at this offset."""
        self.failed = True
        return InvalidPayloadError(f"Bad data format: {why} (at byte {self.offset})")

    def keep(self) -> None:
        """Keep the bytes that are taken from here on, for ``kept``."""
        self._kept, self._kept_from = [], self._at

    def kept(self) -> bytes:
        """All that was taken since ``keep``."""
        assert self._kept is not None
        found, self._kept = self._kept, None
        return b"".join([*found, self._data[self._kept_from : self._at]])

    # -- bytes --------------------------------------------------------------------------------
    def take(self, size: int) -> bytes:
        """The next bytes."""
        at = self._at
        end = at + size
        if end <= len(self._data):
            self._at = end
            return self._data[at:end]
        pieces: list[bytes] = []
        while size > 0:
            piece = self._data[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            pieces.append(piece)
            if size:
                self._more(size)
        return b"".join(pieces)

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """The next bytes, if all of a pattern is at hand and fits; None, and nothing is taken, if
        not: then they are to be read one by one."""
        found = pattern.match(self._data, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def skip(self, size: int) -> None:
        """Skip bytes."""
        while size > 0:
            here = min(size, len(self._data) - self._at)
            self._at += here
            size -= here
            if size:
                self._more(size)

    def ended(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._data) and not self._came()

    def _more(self, missing: int) -> None:
        """Get more bytes: all of ``data`` was taken."""
        if not self._came():
            raise self.error(f"it ends {missing} bytes early")

    def _came(self) -> bool:
        """Get more bytes into ``data``, all of which was taken; False at the end."""
        data = self._fill(CHUNK_BYTES) if self._fill is not None else b""
        if not data:
            return False
        if self._kept is not None:
            self._kept.append(self._data[self._kept_from :])
            self._kept_from = 0
        self._crc = crc64(self._data, self._crc)
        self._before += len(self._data)
        self._data, self._at = data, 0
        return True

    def batch(self, most: int, master: ID | None, top: ID) -> NodeBatch:
        """Verified nodes of a stream; only those in memory with the plain layout, so maybe none.

        At most ``most``, behind a node of this master ID and entries up to ``top``.
        """
        made: NodeBatch = codec().NodeBatch(self._data, self._at, most, master, top)
        self._at = made.end
        return made

    # -- numbers ------------------------------------------------------------------------------
    def byte(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def i64(self) -> int:
        """A time: eight bytes, little endian."""
        found: int = _I64.unpack(self.take(8))[0]
        return found

    def length(self) -> int:
        """A length or count, up to 2^64-1."""
        at = self._at
        if at < len(self._data) and (small := self._data[at]) < _SHORT:
            self._at = at + 1
            return small
        found = self._length()
        if found < 0:
            raise self.error("a string stands where a number must")
        return found

    def _length(self) -> int:
        """A length; for a special string encoding -1 minus its number."""
        first = self.byte()
        kind = first >> 6
        if kind == 0:
            return first
        if kind == 1:
            return (first & 0x3F) << 8 | self.byte()
        if kind == 3:
            return -1 - (first & 0x3F)
        if first == 0x80:
            found: int = _U32.unpack(self.take(4))[0]
        elif first == 0x81:
            found = _U64.unpack(self.take(8))[0]
        else:
            raise self.error(f"no length begins with byte 0x{first:02x}")
        return found

    def signed(self) -> int:
        """A length that stands for a signed number of 64 bits."""
        return signed(self.length())

    def id(self) -> StreamID:
        """An ID as two lengths."""
        return StreamID(self.length(), self.length())

    # -- strings ------------------------------------------------------------------------------
    def string(self, most: int = STRING_MAX_BYTES) -> bytes:
        """A string of at most ``most`` bytes, whatever its encoding."""
        at = self._at
        if at < len(self._data) and (small := self._data[at]) < _SHORT and small <= most:
            end = at + 1 + small
            if end <= len(self._data):
                self._at = end
                return self._data[at + 1 : end]
        return self._string(self._length(), most)

    def name(self, most: int) -> bytes:
        """A string as ``string``. In a file one that is too long is skipped, so that the file can
        be read on: ``too_long`` has the error, and another name is returned."""
        size = stored = self._length()
        packed = size == -1 - _LZF
        if packed:
            stored, size = self.length(), self.length()
        if self._fill is None or size <= most:
            return self._expanded_from(stored, size, most) if packed else self._string(size, most)
        self.skip(stored)
        self.too_long = f"a name of {size} bytes in it, {most} at most"
        return b"(too long, byte %d)" % self.offset

    def _string(self, size: int, most: int) -> bytes:
        if size >= 0:
            self._check_size(size, most)
            return self.take(size)
        encoding = -1 - size
        if encoding in _INTEGERS:
            layout = _INTEGERS[encoding]
            number: int = layout.unpack(self.take(layout.size))[0]
            return b"%d" % number
        if encoding != _LZF:
            raise self.error(f"a string of the unknown encoding {encoding}")
        return self._expanded_from(self.length(), self.length(), most)

    def _expanded_from(self, packed_size: int, size: int, most: int) -> bytes:
        """A compressed string, which has ``size`` bytes when it is expanded."""
        self._check_size(size, most)
        self._check_size(packed_size, most)
        self._expanded += size
        if self._expanded > EXPANDED_MAX_BYTES:
            raise self.error(f"compressed strings of more than {EXPANDED_MAX_BYTES} bytes")
        packed = self.take(packed_size)
        try:
            return codec().lzf_decompress(packed, size)
        except CorruptNodeError as exc:
            raise self.error(exc.message) from exc

    def skip_string(self) -> None:
        """Skip a string."""
        size = self._length()
        if size >= 0:
            self.skip(size)
        elif -1 - size in _INTEGERS:
            self.skip(_INTEGERS[-1 - size].size)
        elif -1 - size == _LZF:
            packed_size = self.length()
            self.length()
            self.skip(packed_size)
        else:
            raise self.error(f"a string of the unknown encoding {-1 - size}")

    def _check_size(self, size: int, most: int) -> None:
        if size > most:
            raise self.error(f"a string of {size} bytes, {most} at most")
