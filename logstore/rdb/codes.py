"""The type codes of streams in RDB, what each holds, the versions they came with, the checksum.

Invariants: a later type has all that an earlier one has; the checksum of DUMP payloads and RDB
files is the CRC-64 of Jones, reflected, starting with 0. Imports nothing of ours.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, Final

LISTPACKS: Final = 15  # Redis 5.0 to 6.2
LISTPACKS_2: Final = 19  # Redis 7.0: first and largest deleted ID, entries added and read
LISTPACKS_3: Final = 21  # Redis 7.2 to 8.4, Valkey: when a consumer was active
LISTPACKS_4: Final = 26  # Redis 8.6: idempotent adds
LISTPACKS_5: Final = 27  # Redis 8.8: entries that were given back
STREAMS: Final = (LISTPACKS, LISTPACKS_2, LISTPACKS_3, LISTPACKS_4, LISTPACKS_5)

# The version of RDB that is written with each type: the lowest that the servers write it with.
# A note of a file: the text of the schema that the stream behind it has here. Servers pass over
# notes that they do not know.
SCHEMA_NOTE = b"logstore-schema"
SCHEMA_MAX_BYTES = 256 << 10

VERSION_OF: Final = {
    LISTPACKS: 9,
    LISTPACKS_2: 10,
    LISTPACKS_3: 11,
    LISTPACKS_4: 13,
    LISTPACKS_5: 14,
}
VERSION_MAX: Final = 15  # of Redis 8.10
VALKEY_VERSION: Final = 80  # of Valkey 9.0 and 9.1; from here on type codes are Valkey's
VALKEY_VERSION_MAX: Final = 81  # of Valkey 9.2

log = logging.getLogger("logstore.rdb")


def readable(kind: int, version: int) -> bool:
    """Whether a type is a stream that can be read, in an RDB of this version."""
    if version >= VALKEY_VERSION:
        return kind in (LISTPACKS, LISTPACKS_2, LISTPACKS_3)
    return kind in STREAMS


def newer(version: int) -> str | None:
    """A note about a version that is newer than the newest known one, as which its streams are
    read; None for a known version."""
    if version <= VERSION_MAX or VALKEY_VERSION <= version <= VALKEY_VERSION_MAX:
        return None
    valkey = version >= VALKEY_VERSION
    known = f"{VALKEY_VERSION_MAX} of Valkey 9.2" if valkey else f"{VERSION_MAX} of Redis 8.10"
    return (
        f"RDB version {version} is newer than {known}, the last one that is known: its streams are "
        "taken as they are in that one; hold them against the server's"
    )


@cache  # at most once for each version
def warn_of(version: int) -> None:
    """Log the note about a version, if there is one."""
    found = newer(version)
    if found is not None:
        log.warning("%s", found)


# -- the checksum ---------------------------------------------------------------------------------
@cache
def _model() -> Any:
    import anycrc  # (takes a while to load, and few who open a store need it)

    return anycrc.Model("CRC64-REDIS")


def crc64(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """The CRC of ``data``; ``before``: that of the bytes before it."""
    crc: int = _model().calc(data, before)
    return crc
