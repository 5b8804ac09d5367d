"""STORE: the version marker, checked first; written atomically, as a whole.

Invariants: nothing else of a store is read before STORE was found whole and of a known version; the
UUID in it never changes; the version only grows; limits of nodes may change, and hold for nodes
that are made from then on.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptionError, NotAStoreError
from logstore.fs import FileSystem
from logstore.log import file_names, versioned
from logstore.options import StoreLimits
from logstore.tuples import NamedTuple

_NAMES = ("uuid", "node_max_bytes", "node_max_entries", "segment_bytes", "created_ms")


class StoreFile(NamedTuple):
    """What STORE says."""

    uuid: bytes
    limits: StoreLimits
    created_ms: int
    version: int = fmt.FORMAT_VERSION


def read(fs: FileSystem, store: Path) -> StoreFile:
    """STORE, checked; typed errors for what is no store, newer or damaged."""
    path = store / file_names.STORE
    try:
        data = fs.read(path, fmt.STORE_HEAD.size + fmt.STORE_BODY_MAX_BYTES)
    except FileNotFoundError:
        if not fs.exists(store):
            raise NotAStoreError(
                f"{store} is not a store: there is no such directory; give that of a store, or "
                "make one by adding to it"
            ) from None
        raise NotAStoreError(
            f"{store} is not a store: there is no file {file_names.STORE} in it; give the "
            "directory of a store, or an empty or new one that may become a store"
        ) from None
    if len(data) < fmt.STORE_HEAD.size or data[:8] != fmt.STORE_MAGIC:
        raise NotAStoreError(f"{path} is not the marker of a store")
    _, of_format, reserved, size, crc = fmt.STORE_HEAD.unpack_from(data)
    versioned.check_version(of_format, store)
    body = data[fmt.STORE_HEAD.size :]
    if len(body) != size or crc32c(body) != crc or reserved:
        raise CorruptionError(f"{path} is damaged: restore it from a backup")
    content = versioned.unpack_map(body, path, _NAMES)
    limits = StoreLimits(
        content["node_max_bytes"], content["node_max_entries"], content["segment_bytes"]
    )
    return StoreFile(content["uuid"], limits, content["created_ms"], of_format)


def pack(content: StoreFile) -> bytes:
    """The bytes of STORE, of the version that is written."""
    body = msgpack.packb(
        {
            "uuid": content.uuid,
            "node_max_bytes": content.limits.node_max_bytes,
            "node_max_entries": content.limits.node_max_entries,
            "segment_bytes": content.limits.segment_bytes,
            "created_ms": content.created_ms,
        }
    )
    head = fmt.STORE_HEAD.pack(fmt.STORE_MAGIC, fmt.FORMAT_VERSION, 0, len(body), crc32c(body))
    return bytes(head + body)


def upgrade(fs: FileSystem, store: Path, content: StoreFile) -> StoreFile:
    """STORE of the version that is written, all else in it as it was; durable."""
    fs.write_atomic(store / file_names.STORE, pack(content))
    return content._replace(version=fmt.FORMAT_VERSION)


def new_uuid() -> bytes:
    """A random identity for a new store."""
    return os.urandom(16)
