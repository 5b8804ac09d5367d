"""Writing RDB files of streams, which Redis from 7.2 on and every Valkey load at their start.

Invariants: pieces are handed on as they are made; a file counts only with its end, ``finish``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logstore.rdb import streamtypes, streamwriter
from logstore.rdb.crc64 import crc64
from logstore.rdb.value import Node, StreamInfoValue
from logstore.rdb.writer import i64, length, string

KIND = streamtypes.LISTPACKS_3
VERSION = streamtypes.VERSION_OF[KIND]
_AUX, _EXPIRES_MS, _SELECT, _END = b"\xfa", b"\xfc", b"\xfe", b"\xff"
PIECE_BYTES = 256 * 1024


class FileWriter:
    """Writes one file through ``write``; ``notes`` say who made it."""

    def __init__(
        self, write: Callable[[bytes], object], notes: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self._write = write
        self._crc = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._put(b"REDIS%04d" % VERSION)
        for name, value in notes:
            self._put(_AUX + string(name) + string(value))
        self._put(_SELECT + length(0))

    def stream(
        self, name: bytes, node_count: int, nodes: Iterable[Node], info: StreamInfoValue,
        expires_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Write one stream; ``nodes`` are as many as ``node_count`` says."""
        if expires_ms is not None:
            self._put(_EXPIRES_MS + i64(expires_ms))
        self._put(bytes((KIND,)) + string(name))
        for piece in streamwriter.nodes(node_count, nodes):
            self._put(piece)
        for piece in streamwriter.info(info, KIND):
            self._put(piece)

    def finish(self) -> None:
        """Write the end and the checksum."""
        self._put(_END)
        self._flush()
        self._write(self._crc.to_bytes(8, "little"))

    def _put(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        self._crc = crc64(data, self._crc)
        self._write(data)
