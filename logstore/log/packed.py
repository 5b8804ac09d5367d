"""msgpack of a file whose checksum is right: what was written, or a typed error.

A checksum tells accidents, and not a file that somebody made: such a file is refused as well. Knows
nothing of files.
"""

from __future__ import annotations

from typing import Any

import msgpack

from logstore.errors import CorruptionError

_ERRORS = (ValueError, TypeError, OverflowError)  # of msgpack, of text, of keys, of its times


def unpack(data: bytes, what: object) -> Any:
    """The value; CorruptionError, naming ``what`` it stands in, for bytes that are none."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except _ERRORS as exc:
        raise CorruptionError(f"{what} does not hold what belongs there: {exc}") from exc


def unpack_map(data: bytes, what: object, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A map that has these names; CorruptionError for anything else."""
    found = unpack(data, what)
    if not isinstance(found, dict) or any(name not in found for name in names):
        raise CorruptionError(f"{what} does not hold what belongs there: no map with {names}")
    return found
