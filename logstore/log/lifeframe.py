"""Frame bodies of what becomes of a stream as a whole: when it expires, what it is called.

Invariants: physical results, as all bodies: a time, never how long from now. Knows nothing of files
or of the index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.format import Kind
from logstore.tuples import NamedTuple


class Expire(NamedTuple):
    """The stream is gone from this time on (unix ms; 0: never)."""

    stream: int
    expires_ms: int


class Rename(NamedTuple):
    """The stream has this name now; no other stream has it."""

    stream: int
    name: bytes


def _decode_rename(payload: bytes) -> Rename:
    (stream,) = fmt.RENAME_BODY.unpack_from(payload)
    return Rename(stream, payload[fmt.RENAME_BODY.size :])


LifeBody: TypeAlias = Expire | Rename
KIND_OF: dict[type, int] = {Expire: Kind.EXPIRE, Rename: Kind.RENAME}
ENCODERS: dict[type, Callable[..., bytes]] = {
    Expire: lambda body: fmt.EXPIRE_BODY.pack(*body),
    Rename: lambda body: fmt.RENAME_BODY.pack(body.stream) + body.name,
}
DECODERS: dict[int, Callable[[bytes], Any]] = {
    int(Kind.EXPIRE): lambda payload: Expire(*fmt.EXPIRE_BODY.unpack(payload)),
    int(Kind.RENAME): _decode_rename,
}
