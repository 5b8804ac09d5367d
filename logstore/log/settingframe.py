"""The frame body of settings: all that is set for one stream or group after it.

Invariants: a physical result, as all bodies; a group is named by its number, and a frame of a group
names its stream too. Knows nothing of files or of the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgpack

from logstore import format as fmt
from logstore.format import Kind
from logstore.tuples import NamedTuple

SETTINGS_MAX_BYTES = 1 << 20


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
    """A map of settings; struct.error if it is none."""
    if len(data) > SETTINGS_MAX_BYTES:
        raise struct.error(f"more than {SETTINGS_MAX_BYTES} bytes of settings")
    try:
        values = msgpack.unpackb(data, raw=False)
    except (ValueError, msgpack.UnpackException) as exc:
        raise struct.error(f"not a map of settings: {exc}") from exc
    if not isinstance(values, dict):
        raise struct.error("not a map of settings")
    return values


KIND_OF: dict[type, int] = {Setting: Kind.SETTING}
ENCODERS: dict[type, Callable[..., bytes]] = {Setting: _encode}
DECODERS: dict[int, Callable[[bytes], Any]] = {int(Kind.SETTING): _decode}
