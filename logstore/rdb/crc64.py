"""The checksum of DUMP payloads and RDB files: CRC-64 of Jones, reflected, starting with 0."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _model() -> Any:
    import anycrc  # (takes a while to load, and few who open a store need it)

    return anycrc.Model("CRC64-REDIS")


def crc64(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """The CRC of ``data``; ``before`` is that of what stands in front of it."""
    crc: int = _model().calc(data, before)
    return crc
