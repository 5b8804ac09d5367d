"""Rows of the index as bytes: sealed with a checksum, and what a row that is not right raises.

Invariants: every value ends in a CRC32C that is bound to its key, so that a flipped bit, or a value
under another key, is an error and never a wrong value. Knows no database and no layout of a row.
"""

from __future__ import annotations

import struct
from _blake2 import blake2b  # what hashlib gives, without loading OpenSSL
from typing import Any, Final

from logstore.codec import codec
from logstore.errors import CorruptionError

_ANEW = "close the store, delete its index directory, and open it again; it is rebuilt from the log"


# Looked up once: each row that is read or written passes here.
_SEAL: Final[Any] = codec().seal
_UNSEAL: Final[Any] = codec().unseal


class LostRowsError(CorruptionError):
    """Rows of the index that must be there are not: what it says is not to be believed.

    ``generation``: of which index; ``given``: a part of the answer was given away before.
    """

    def __init__(self, message: str, generation: int, *, given: bool = False) -> None:
        super().__init__(message)
        self.generation = generation
        self.given = given


def seal(key: bytes, value: bytes) -> bytes:
    """``value`` with its CRC."""
    sealed: bytes = _SEAL(key, value)
    return sealed


def unseal(key: bytes, data: bytes) -> bytes:
    """The value, checked; CorruptionError if it is not what was stored under this key."""
    value: bytes | None = _UNSEAL(key, data)
    if value is None:
        raise CorruptionError(f"the index is damaged at key {key[:40].hex()}: {_ANEW}")
    return value


def fetch(txn: Any, database: Any, key: bytes) -> bytes | None:
    """The value of a row of an LMDB transaction, checked as ``unseal`` does; None without a row."""
    data = txn.get(key, db=database)
    return None if data is None else unseal(key, data)


def key_parts(layout: struct.Struct, key: bytes) -> tuple[int, ...]:
    """The numbers of a key; CorruptionError if it has another length, as a damaged page may say."""
    if len(key) != layout.size:
        raise CorruptionError(f"the index is damaged at key {key[:40].hex()}: {_ANEW}")
    return layout.unpack(key)


def digest(name: bytes) -> bytes:
    """What stands for a name of any length in a key: 16 bytes."""
    return blake2b(name, digest_size=16).digest()
