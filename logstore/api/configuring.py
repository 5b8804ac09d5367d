"""Settings of streams and groups, as users give them: what is left out stays as it is.

Times are seconds or ``timedelta``. It knows no logic of the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.engine.snapshots import snapshot
from logstore.errors import OptionError, shown
from logstore.features.settings import SettingRows
from logstore.options import Sync
from logstore.settings import GroupSettings, StreamSettings

T = TypeVar("T", bytes, str)


class Keep(Enum):
    """What stands for a setting that is left as it is."""

    KEEP = "as it is"

    def __repr__(self) -> str:
        return self.name


KEEP: Literal[Keep.KEEP] = Keep.KEEP
LIMITS = "max_age_ms", "max_entries", "max_bytes"
Amount: TypeAlias = int | Literal[Keep.KEEP] | None
Length: TypeAlias = timedelta | float | Literal[Keep.KEEP] | None


def stream_changes(
    max_age: Length,
    max_entries: Amount,
    max_bytes: Amount,
    idempotent_duration: timedelta | float | Literal[Keep.KEEP],
    idempotent_max_ids: int | Literal[Keep.KEEP],
    compact_by: str | bytes | Literal[Keep.KEEP] | None,
    keep_until_shipped: bool | Literal[Keep.KEEP],
    encoding: str | None,
) -> dict[str, Any]:
    """The settings of a stream that are to be changed, checked."""
    changes: dict[str, Any] = {
        "max_age_ms": _milliseconds(max_age, "max_age"),
        "max_entries": max_entries,
        "max_bytes": max_bytes,
        "idempotent_duration_s": _whole_seconds(idempotent_duration, "idempotent_duration"),
        "idempotent_max_ids": idempotent_max_ids,
        "compact_by": compact_by,
        "keep_until_shipped": keep_until_shipped,
    }
    if isinstance(compact_by, str):
        changes["compact_by"] = arguments.text_bytes(compact_by, encoding)
    given = {name: value for name, value in changes.items() if value is not KEEP}
    StreamSettings(**given).check()
    return given


def group_changes(
    encoding: str | None,
    max_deliveries: Amount,
    dead_letter: str | bytes | Literal[Keep.KEEP] | None,
    redeliver_after: Length,
    backoff: Length,
    backoff_max: timedelta | float | Literal[Keep.KEEP],
) -> dict[str, Any]:
    """The settings of a group that are to be changed; what they are together is checked later."""
    letter: Any = dead_letter
    if isinstance(letter, (str, bytes)):
        letter = arguments.stream_name(letter, encoding)
    elif letter is not None and letter is not KEEP:
        raise OptionError(f"dead_letter must be the name of a stream: {shown(letter)}")
    changes = {
        "max_deliveries": max_deliveries,
        "dead_letter": letter,
        "redeliver_after_ms": _milliseconds(redeliver_after, "redeliver_after"),
        "backoff_ms": _milliseconds(backoff, "backoff"),
        "backoff_max_ms": _milliseconds(backoff_max, "backoff_max"),
    }
    return {name: value for name, value in changes.items() if value is not KEEP}


def configure_stream(
    opened: OpenStore[Any], name: bytes, changes: dict[str, Any], *, create: bool, sync: Sync | None
) -> StreamSettings:
    """One commit; all settings after it. A limit is for giving space back, also of a full disk."""
    from logstore.engine.features import settings as configures

    step = partial(configures.stream, name=name, changes=changes, create=create)
    limited = any(changes.get(limit) is not None for limit in LIMITS)
    after: StreamSettings = (opened.free if limited else opened.commit)(step, sync)
    return with_text(after, opened.text)


def configure_group(
    opened: OpenStore[T], stream: bytes, name: bytes, changes: dict[str, Any], sync: Sync | None
) -> GroupSettings[T]:
    """One commit; all settings after it."""
    from logstore.engine.features import settings as configures

    step = partial(configures.group, stream=stream, name=name, changes=changes)
    after: GroupSettings[bytes] = opened.commit(step, sync)
    return told(after, opened.text)


def told(settings: GroupSettings[bytes], text: Callable[[bytes], T]) -> GroupSettings[T]:
    """Settings of a group with names as users have them."""
    letter = None if settings.dead_letter is None else text(settings.dead_letter)
    return GroupSettings(settings.max_deliveries, letter, *settings[2:])


def stream_settings(opened: OpenStore[Any], name: bytes) -> StreamSettings:
    """The settings of a stream; of one that is not there, those that all have at first."""

    def look(view: snapshot.Snapshot) -> StreamSettings:
        record = view.record(name)
        return StreamSettings() if record is None else SettingRows(view.index).stream(record.number)

    return with_text(opened.view(look), opened.text)


def with_text(settings: StreamSettings, text: Callable[[bytes], Any]) -> StreamSettings:
    """Settings of a stream with the name of a field as users have it."""
    field = settings.compact_by
    return settings._replace(compact_by=text(field)) if isinstance(field, bytes) else settings


def _milliseconds(length: Length, name: str) -> Any:
    return length if length is None or length is KEEP else arguments.milliseconds(length, name)


def _whole_seconds(length: timedelta | float | Literal[Keep.KEEP], name: str) -> Any:
    if length is KEEP:
        return length
    length_ms = arguments.milliseconds(length, name)
    if length_ms % 1000:
        raise OptionError(f"{name} must be whole seconds: {shown(length)}")
    return length_ms // 1000
