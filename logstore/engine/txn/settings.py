"""The settings that an operation sees and changes: the index plus what this commit did so far.

Invariants: written through; what is kept survives to the next commit only while nobody else
committed in between (``RecordCache``). Decides nothing.
"""

from __future__ import annotations

from logstore.engine.runtime.record_cache import SettingCache
from logstore.index.setting_txn import OF_GROUP, OF_STREAM, SettingTxn
from logstore.settings import GroupSettings, StreamSettings


class SettingState:
    """One write transaction's view of the settings."""

    __slots__ = ("_kept", "_txn")

    def __init__(self, txn: SettingTxn, kept: SettingCache) -> None:
        self._txn = txn
        self._kept = kept

    def stream(self, number: int) -> StreamSettings:
        """The settings of a stream."""
        found = self._kept.streams.get(number)
        if found is None:
            found = self._kept.streams[number] = self._txn.stream(number)
        return found

    def group(self, number: int) -> GroupSettings[bytes]:
        """The settings of a group."""
        found = self._kept.groups.get(number)
        if found is None:
            found = self._kept.groups[number] = self._txn.group(number)
        return found

    def put_stream(self, number: int, settings: StreamSettings) -> None:
        """Set what is set for a stream."""
        self._txn.put(number, settings)
        self._kept.streams[number] = settings

    def put_group(self, number: int, settings: GroupSettings[bytes]) -> None:
        """Set what is set for a group."""
        self._txn.put(number, settings)
        self._kept.groups[number] = settings

    def drop_stream(self, number: int) -> None:
        """The stream went."""
        self._txn.delete(OF_STREAM, number)
        self._kept.streams.pop(number, None)

    def drop_group(self, number: int) -> None:
        """The group went."""
        self._txn.delete(OF_GROUP, number)
        self._kept.groups.pop(number, None)
