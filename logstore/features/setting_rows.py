"""Settings of streams and groups, as they are stored: the frame, rows, and what is kept decoded.

A frame, like a row, holds all that is set for one stream or group after it. A group is named by its
number, and a frame of a group names its stream too; a stream or group without a row has the
settings that all have by default.

Invariants: a frame counts only if it stands behind the position of its stream's, or its group's,
record. A checkpoint reads settings behind the streams and groups that it holds, so that settings
are never older than the position of the record they belong to; replay passes over or repeats the
rest. Settings end with what they belong to. They are written through; what is decoded survives to
the next commit only while nobody else committed in between (``RecordCache``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Protocol

import msgpack

from logstore import format as fmt
from logstore.features import feature
from logstore.format import Kind
from logstore.row_seal import key_parts
from logstore.settings import GroupSettings, StreamSettings, restored, stored
from logstore.tuples import NamedTuple

SETTINGS_MAX_BYTES = 1 << 20
_KEY = struct.Struct(">BQ")  # which of the two, then the stream's or the group's number
OF_STREAM, OF_GROUP = 0, 1
_STREAM, _GROUP = StreamSettings(), GroupSettings()  # as all are by default


class Setting(NamedTuple):
    """What is set for a stream (``group`` 0) or a group, by name; all the rest is as by default."""

    stream: int
    group: int
    values: dict[str, Any]


def _encode(body: Setting) -> bytes:
    packed: bytes = msgpack.packb(body.values, use_bin_type=True)
    return fmt.SETTING_BODY.pack(body.stream, body.group) + packed


def _decode(payload: bytes) -> Setting:
    stream, group = fmt.SETTING_BODY.unpack_from(payload)
    return Setting(stream, group, unpacked(payload[fmt.SETTING_BODY.size :]))


def unpacked(data: bytes) -> dict[str, Any]:
    """A map of settings; struct.error for bytes that are no such map."""
    if len(data) > SETTINGS_MAX_BYTES:
        raise struct.error(f"more than {SETTINGS_MAX_BYTES} bytes of settings")
    try:
        values = msgpack.unpackb(data, raw=False)
    except (ValueError, msgpack.UnpackException) as exc:
        raise struct.error(f"not a map of settings: {exc}") from exc
    if not isinstance(values, dict):
        raise struct.error("not a map of settings")
    return values


class SettingRows(feature.FeatureRows):
    """The settings of streams and groups."""

    __slots__ = ()
    DATABASE = "settings"

    def stream(self, number: int) -> StreamSettings:
        """The settings of a stream."""
        kept = self._kept(OF_STREAM, number)
        return _STREAM if kept is None else restored(StreamSettings, kept)

    def group(self, number: int) -> GroupSettings[bytes]:
        """The settings of a group."""
        kept = self._kept(OF_GROUP, number)
        return _GROUP if kept is None else restored(GroupSettings, kept)

    def put(self, number: int, settings: StreamSettings | GroupSettings[bytes]) -> None:
        """Store the settings of a stream or a group."""
        self.put_plain(int(isinstance(settings, GroupSettings)), number, stored(settings))

    def put_plain(self, which: int, number: int, kept: dict[str, Any]) -> None:
        """Store settings as they stand in a checkpoint."""
        if not kept:
            self.delete(which, number)
            return
        packed: bytes = msgpack.packb(kept, use_bin_type=True)
        self._put(_KEY.pack(which, number), packed)

    def delete(self, which: int, number: int) -> None:
        """The stream or group went, and its settings with it."""
        self._delete(_KEY.pack(which, number))

    def rows(self, which: int, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Streams, or groups, that have settings, with a number above ``after``."""
        for key, value in self._scan(_KEY.pack(which, after + 1), bytes([which])):
            yield key_parts(_KEY, key)[1], msgpack.unpackb(value, raw=False)

    def _kept(self, which: int, number: int) -> dict[str, Any] | None:
        value = self._get(_KEY.pack(which, number))
        return None if value is None else msgpack.unpackb(value, raw=False)


class SettingCache:
    """Decoded settings, valid as long as the record cache of the process is."""

    def __init__(self) -> None:
        self.streams: dict[int, StreamSettings] = {}
        self.groups: dict[int, GroupSettings[bytes]] = {}

    def __len__(self) -> int:
        return len(self.streams) + len(self.groups)

    def clear(self) -> None:
        """Forget everything."""
        self.streams.clear()
        self.groups.clear()


class TxnSettings:
    """What an operation sees and changes: the index, and what this commit did so far."""

    __slots__ = ("_cache", "_rows")

    def __init__(self, rows: SettingRows, cache: SettingCache) -> None:
        self._rows = rows
        self._cache = cache

    def stream(self, number: int) -> StreamSettings:
        """The settings of a stream."""
        found = self._cache.streams.get(number)
        if found is None:
            found = self._cache.streams[number] = self._rows.stream(number)
        return found

    def group(self, number: int) -> GroupSettings[bytes]:
        """The settings of a group."""
        found = self._cache.groups.get(number)
        if found is None:
            found = self._cache.groups[number] = self._rows.group(number)
        return found

    def put_stream(self, number: int, settings: StreamSettings) -> None:
        """Set what is set for a stream."""
        self._rows.put(number, settings)
        self._cache.streams[number] = settings

    def put_group(self, number: int, settings: GroupSettings[bytes]) -> None:
        """Set what is set for a group."""
        self._rows.put(number, settings)
        self._cache.groups[number] = settings

    def drop_stream(self, number: int) -> None:
        """The stream went."""
        self._rows.delete(OF_STREAM, number)
        self._cache.streams.pop(number, None)

    def drop_group(self, number: int) -> None:
        """The group went."""
        self._rows.delete(OF_GROUP, number)
        self._cache.groups.pop(number, None)


class _Group(Protocol):
    """Of a group's record, that it is there."""

    stream: int


class _Groups(Protocol):
    """The groups of a write transaction."""

    def advance(self, number: int, at: int) -> _Group | None:
        """As ``Txn.advance``, for the record of a group."""
        ...


class _Txn(feature.Txn, Protocol):
    """A write transaction, with the settings that it keeps decoded."""

    @property
    def settings(self) -> TxnSettings:
        """The settings of streams and groups."""
        ...

    @property
    def groups(self) -> _Groups:
        """Consumer groups."""
        ...


def _apply(txn: _Txn, at: int, body: Setting) -> None:
    if not body.group:
        if txn.advance(body.stream, at) is not None:
            txn.settings.put_stream(body.stream, restored(StreamSettings, body.values))
        return
    record = txn.record(body.stream)
    if record is not None and txn.groups.advance(body.group, at) is not None:
        txn.settings.put_group(body.group, restored(GroupSettings, body.values))
        txn.woken.add(record.name)  # who waits may be handed other entries now


def _dropped(txn: _Txn, stream: int) -> None:
    txn.settings.drop_stream(stream)


def _page(index: feature.Index, after: tuple[int, int] | None) -> feature.Page[tuple[int, int]]:
    which, number = after or (OF_STREAM, 0)
    page = feature.page_of(
        "settings", SettingRows(index).rows(which, number), lambda row: (which, row[0])
    )
    if page is None:
        return ([], (OF_GROUP, 0)) if which == OF_STREAM else None
    page[0][0]["which"] = which
    return page


def _load(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = SettingRows(txn.index)
    for number, kept in chunk["rows"]:
        rows.put_plain(chunk["which"], number, kept)


def _every_row(index: feature.Index) -> Iterator[Any]:
    for which in (OF_STREAM, OF_GROUP):
        for row in SettingRows(index).rows(which):
            yield which, row


FEATURE: feature.Feature = feature.Feature(
    database=SettingRows.DATABASE,
    frames=(feature.FrameKind(Kind.SETTING, (Setting,), _encode, _decode, _apply, of_record=True),),
    copies=(feature.Copied("settings", _page, _load),),
    compares=(feature.Compared("settings differ", _every_row),),
    dropped=_dropped,
)
