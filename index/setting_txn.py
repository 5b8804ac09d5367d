"""Typed access to settings inside one LMDB transaction, reading or writing.

Invariants: as of ``txn``: every value is checked against its CRC before it is used. A stream or a
group without a row has the settings that all have by default.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from logstore.index.env import Generation
from logstore.index.keys import key_parts, seal, unseal
from logstore.settings import GroupSettings, StreamSettings, restored, stored

_KEY = struct.Struct(">BQ")  # which of the two, then the stream's or the group's number
OF_STREAM, OF_GROUP = 0, 1
_STREAM, _GROUP = StreamSettings(), GroupSettings()  # as all are by default


class SettingTxn:
    """The settings as one transaction sees them."""

    __slots__ = ("_database", "_txn")

    def __init__(self, generation: Generation, txn: Any) -> None:
        self._database = generation.settings
        self._txn = txn

    def stream(self, number: int) -> StreamSettings:
        """The settings of a stream."""
        kept = self._get(OF_STREAM, number)
        return _STREAM if kept is None else restored(StreamSettings, kept)

    def group(self, number: int) -> GroupSettings[bytes]:
        """The settings of a group."""
        kept = self._get(OF_GROUP, number)
        return _GROUP if kept is None else restored(GroupSettings, kept)

    def put(self, number: int, settings: StreamSettings | GroupSettings[bytes]) -> None:
        """Store the settings of a stream or a group."""
        self.put_plain(int(isinstance(settings, GroupSettings)), number, stored(settings))

    def put_plain(self, which: int, number: int, kept: dict[str, Any]) -> None:
        """Store settings as they stand in a checkpoint."""
        if not kept:
            self.delete(which, number)
            return
        key = _KEY.pack(which, number)
        packed: bytes = msgpack.packb(kept, use_bin_type=True)
        self._txn.put(key, seal(key, packed), db=self._database)

    def delete(self, which: int, number: int) -> None:
        """The stream or group went, and its settings with it."""
        self._txn.delete(_KEY.pack(which, number), db=self._database)

    def rows(self, which: int, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Streams, or groups, that have settings, with a number above ``after``."""
        with self._txn.cursor(db=self._database) as cursor:
            if not cursor.set_range(_KEY.pack(which, after + 1)):
                return
            for key, data in cursor:
                kind, number = key_parts(_KEY, key)
                if kind != which:
                    return
                yield number, msgpack.unpackb(unseal(key, data), raw=False)

    def _get(self, which: int, number: int) -> dict[str, Any] | None:
        key = _KEY.pack(which, number)
        data = self._txn.get(key, db=self._database)
        if data is None:
            return None
        found: dict[str, Any] = msgpack.unpackb(unseal(key, data), raw=False)
        return found
