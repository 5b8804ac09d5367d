"""Contents of files that are not segments: the version in a head, and msgpack behind it.

Invariants: a newer version is refused by a typed error before anything behind the head is believed;
what is written has the newest version, whatever the file beside it has. A checksum finds accidents,
and not a file that somebody made: what is no msgpack, or not what belongs there, is refused as
well. Both are asked only after a CRC was found right, where there is one. Knows nothing of files.
"""

from __future__ import annotations

from typing import Any

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptionError, FormatVersionError

_ERRORS = (ValueError, TypeError, OverflowError)  # of msgpack, of text, of keys, of its times


def is_readable(version: int) -> bool:
    """Whether this logstore reads what a head with this version stands before."""
    return fmt.OLDEST_VERSION <= version <= fmt.FORMAT_VERSION


def check_version(version: int, what: object) -> None:
    """FormatVersionError if ``what`` is of a newer version; CorruptionError if of none."""
    if version > fmt.FORMAT_VERSION:
        raise FormatVersionError(
            f"{what} is of format {version}, this logstore reads up to {fmt.FORMAT_VERSION}: "
            "upgrade logstore to read it"
        )
    if not is_readable(version):
        raise CorruptionError(f"{what} says that it is of format {version}, which never was")


def sealed(body: bytes) -> bytes:
    """A small file without a head: the CRC of its content, then that."""
    return int(crc32c(body)).to_bytes(4, "little") + body


def unsealed(data: bytes) -> bytes | None:
    """The content of a file that `sealed` made; None if it is not whole.

    Zeros are the checksum of nothing, and no content.
    """
    body = data[4:]
    return body if body and crc32c(body) == int.from_bytes(data[:4], "little") else None


def unpack(data: bytes, what: object) -> Any:
    """The value; CorruptionError, naming ``what`` it stands in, for bytes that hold none."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except _ERRORS as exc:
        raise CorruptionError(f"{what} does not hold what belongs there: {exc}") from exc


def unpack_map(data: bytes, what: object, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A map that has these names; CorruptionError for anything else."""
    content = unpack(data, what)
    if not isinstance(content, dict) or any(name not in content for name in names):
        raise CorruptionError(f"{what} does not hold what belongs there: no map with {names}")
    return content
