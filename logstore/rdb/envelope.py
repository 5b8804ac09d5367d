"""RDB files that are compressed as a whole: the envelope of Valkey 9.2 and what is inside of it.

An envelope is seven bytes (``VCS``, its version 1, the codec, 0, the kind of what is inside) and
one frame of the codec, LZ4 or Zstandard, to the end of the file. Invariants: what comes out is made
in pieces of some MiB at most, whatever the frame says of its size; it is never more than
``RATIO_MAX`` times what went in, beyond ``FREE_BYTES``; a frame that is damaged or cut off, and
bytes behind it, are an InvalidPayloadError. The layout is that of the page about it in Valkey's
sources, and Zstandard's number that of its proposal (valkey#3798).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.errors import InvalidPayloadError
from logstore.loading import needing

MAGIC: Final = b"VCS"
HEAD_BYTES: Final = 7
_VERSION, _RDB = 1, 1
_LZ4, _ZSTANDARD = 1, 2
PIECE_BYTES = 256 * 1024
READ_BYTES = 64 * 1024
SIP_BYTES = 512  # of Zstandard at once, of which each four may become 128 KiB
RATIO_MAX = 1000  # repetitive files are seldom compressed better than to a hundredth
FREE_BYTES = 64 << 20
WINDOW_MAX_BYTES = 128 << 20  # what a Zstandard frame may ask to be kept in memory
Fill = Callable[[int], bytes]


def _damaged(why: object) -> InvalidPayloadError:
    return InvalidPayloadError(f"Bad data format: the compressed RDB file is damaged: {why}")


def opened(fill: Fill) -> Fill:
    """What gives the RDB file in an envelope, piece by piece, as ``fill`` gives the envelope.

    InvalidPayloadError, here or later; UsageError if the codec's package is not installed.
    """
    source = _Source(fill)
    head = source.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        raise _damaged("its head is cut off")
    version, codec, reserved, kind = head[len(MAGIC) :]
    if (version, reserved, kind) != (_VERSION, 0, _RDB) or codec not in _CODECS:
        raise InvalidPayloadError(
            f"a compressed RDB file with the head {head.hex(' ')} is not known: let the server "
            "write it with rdbcompression lz4, or yes"
        )
    pieces = _bounded(_CODECS[codec](source), source)
    return lambda _size: next(pieces, b"")


class _Source:
    """The bytes of the envelope, counted."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._held, self._at = b"", 0
        self.taken = 0

    def read(self, size: int = READ_BYTES) -> bytes:
        """Some of the next bytes, ``size`` of them unless it ends before; b"": the end."""
        while len(self._held) - self._at < size and (more := self._fill(size)):
            self._held, self._at = self._held[self._at :] + more, 0
        found = self._held[self._at : self._at + size]
        self._at += len(found)
        self.taken += len(found)
        return found


def _bounded(pieces: Iterator[bytes], source: _Source) -> Iterator[bytes]:
    """The pieces, as long as they are not far more than can be of so few bytes."""
    made = 0
    for piece in pieces:
        made += len(piece)
        if made > FREE_BYTES + RATIO_MAX * source.taken:
            raise InvalidPayloadError(
                f"{source.taken} bytes of a compressed RDB file became {made}, over {RATIO_MAX} "
                "times as many: let its server write it with rdbcompression yes"
            )
        yield piece


def _lz4(source: _Source) -> Iterator[bytes]:
    """What an LZ4 frame holds; its checksums, where it has some, are looked at."""
    frame: Any = needing("rdb", lambda: importlib.import_module("lz4.frame"))
    decompressor = frame.LZ4FrameDecompressor()
    data = source.read()
    while not decompressor.eof:
        if not data and decompressor.needs_input:
            raise _damaged("it is cut off")
        try:
            piece = decompressor.decompress(data, max_length=PIECE_BYTES)
        except RuntimeError as exc:
            raise _damaged(exc) from exc
        data = b""
        if piece:
            yield piece
        if decompressor.needs_input and not decompressor.eof:
            data = source.read()
    _ended(decompressor.unused_data or b"", source)


def _zstandard(source: _Source) -> Iterator[bytes]:
    """What a Zstandard frame holds; its checksum, where it has one, is looked at."""
    zstandard: Any = needing("rdb", lambda: importlib.import_module("zstandard"))
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX_BYTES)
    frame = decompressor.decompressobj(read_across_frames=False)
    while not frame.eof:
        data = source.read(SIP_BYTES)
        if not data:
            raise _damaged("it is cut off")
        try:
            piece = frame.decompress(data)
        except zstandard.ZstdError as exc:
            raise _damaged(exc) from exc
        if piece:
            yield piece
    _ended(frame.unused_data, source)


def _ended(behind: bytes, source: _Source) -> None:
    """A file has one frame, and nothing behind it."""
    if behind or source.read(1):
        raise _damaged("something stands behind its end")


_CODECS: Final[dict[int, Callable[[_Source], Iterator[bytes]]]] = {
    _LZ4: _lz4,
    _ZSTANDARD: _zstandard,
}
