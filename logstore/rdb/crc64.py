"""The checksum of DUMP payloads and RDB files: CRC-64 of Jones, reflected, starting with 0."""

from __future__ import annotations

import anycrc

_calculate = anycrc.Model("CRC64-REDIS").calc


def crc64(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """The CRC of ``data``; ``before`` is that of what stands in front of it."""
    crc: int = _calculate(data, before)
    return crc
