"""Bytes that are read as if they stood in a segment."""

from __future__ import annotations


class Held:
    """Bytes that stand at an offset of a segment."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = bytes(offset) + data

    def pread(self, size_bytes: int, offset: int) -> bytes:
        return self._data[offset : offset + size_bytes]
