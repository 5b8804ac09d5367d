"""Settings of streams and groups, as users give them; a setting that is left out stays.

Times are seconds, ``timedelta`` or "1h". It knows no logic of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.engine.snapshots import snapshot
from logstore.errors import OptionError, shown
from logstore.features.setting_rows import SettingRows
from logstore.options import GroupSettings, Length, StreamSettings, Sync

if TYPE_CHECKING:
    from logstore.index.keys import StreamRecord
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)


LIMITS = "max_age_ms", "max_entries", "max_bytes"


class StreamOptions(TypedDict, total=False):
    """Settings of a stream, as ``Stream.configure`` describes them; one that is not there stays."""

    max_age: Length | None
    max_entries: int | None
    max_bytes: int | None
    idempotent_duration: Length
    idempotent_max_ids: int
    compact_by: str | bytes | None
    keep_until_shipped: bool
    schema: str | Schema | None


class GroupOptions(TypedDict, total=False):
    """Settings of a group, as ``Group.configure`` describes them; one that is not there stays."""

    max_deliveries: int | None
    dead_letter: str | bytes | None
    min_idle: Length | None
    backoff: Length | None
    backoff_max: Length


def stream_changes(options: StreamOptions, encoding: str | None) -> dict[str, Any]:
    """The settings of a stream that are to be changed, checked."""
    arguments.check_names(options, StreamOptions, "configure")
    changes: dict[str, Any] = {key: value for key, value in options.items() if key != "schema"}
    _in_milliseconds(changes, "max_age")
    if "idempotent_duration" in changes:
        length = changes.pop("idempotent_duration")
        changes["idempotent_duration_s"] = _whole_seconds(length, "idempotent_duration")
    if isinstance(changes.get("compact_by"), str):
        changes["compact_by"] = arguments.text_bytes(changes["compact_by"], encoding)
    StreamSettings(**changes).check()
    return changes


def group_changes(options: GroupOptions, encoding: str | None) -> dict[str, Any]:
    """The settings of a group that are to be changed; what they are together is checked later."""
    arguments.check_names(options, GroupOptions, "configure")
    changes: dict[str, Any] = dict(options)
    letter = changes.get("dead_letter")
    if isinstance(letter, (str, bytes)):
        changes["dead_letter"] = arguments.stream_name(letter, encoding)
    elif letter is not None:
        raise OptionError(f"dead_letter must be the name of a stream: {shown(letter)}")
    for name in ("min_idle", "backoff", "backoff_max"):
        _in_milliseconds(changes, name)
    return changes


def configure_stream(
    opened: OpenStore[Any], name: bytes, changes: dict[str, Any], *, create: bool, sync: Sync | None
) -> StreamSettings:
    """One commit; all settings after it. A limit is for giving space back, also of a full disk."""
    from logstore.engine.features import setting_changes as configures

    step = partial(configures.stream, name=name, changes=changes, create=create)
    limited = any(changes.get(limit) is not None for limit in LIMITS)
    after: StreamSettings = (opened.free if limited else opened.commit)(step, sync)
    return stream_with_text(after, opened.text)


def configure_codec(
    opened: OpenStore[Any], name: bytes, codec: str | None, changes: dict[str, Any]
) -> StreamSettings:
    """Set the codec of a stream that is there, and its settings in the same commit, which this
    gives as they are then. OptionError if entries are stored by another one, or by a schema."""
    from logstore.engine.features import setting_changes

    def step(txn: Any) -> StreamSettings:
        setting_changes.keep_codec(txn, name, codec, create=False)
        return setting_changes.stream(txn, name, changes, create=False)

    return stream_with_text(opened.commit(step), opened.text)


def schema_of(given: object) -> Schema | None:
    """A schema as it is given: its text, itself, or None. OptionError."""
    from logstore.schema.schema_text import parse
    from logstore.schema.stream_schema import Schema

    return given if given is None or isinstance(given, Schema) else parse(given)


def configure_schema(
    opened: OpenStore[Any],
    name: bytes,
    schema: Schema | None,
    changes: dict[str, Any],
    *,
    create: bool,
    sync: Sync | None,
) -> StreamSettings:
    """Set the schema of a stream, and in the same commit its settings, which this gives as they are
    then. SchemaError for a stored entry that it cannot read."""
    from logstore.engine.features import schema_changes, setting_changes

    def commit(step: Callable[[Any], Any]) -> Any:
        return opened.commit(step, sync)

    settings = partial(setting_changes.stream, name=name, changes=changes, create=create)
    after: StreamSettings = schema_changes.put(
        opened.engine(), commit, name, schema, create=create, settings=settings
    )
    return stream_with_text(after, opened.text)


def schema_in(view: snapshot.Snapshot, record: StreamRecord) -> Schema | None:
    """The schema of a stream as a snapshot has it."""
    if not record.schema_at:
        return None
    from logstore.features.typed_rows import schema_of

    return schema_of(view.index, record)


def stream_schema(opened: OpenStore[Any], name: bytes) -> Schema | None:
    """The schema of a stream; None if there is none, or no stream."""
    return kept_schema(opened, name)[0]


def kept_schema(opened: OpenStore[Any], name: bytes) -> tuple[Schema | None, int]:
    """The same, and the position of its frame."""
    if not opened.schema_at(name):
        return None, 0

    def look(view: snapshot.Snapshot) -> tuple[Schema | None, int]:
        record = view.record(name)
        return (None, 0) if record is None else (schema_in(view, record), record.schema_at)

    found: tuple[Schema | None, int] = opened.view(look)
    return found


STREAMS_AT_ONCE = 256  # looked up on one snapshot


def stream_codec(opened: OpenStore[Any], name: bytes) -> str | None:
    """The name of the codec that is kept with a stream; None if there is none, or no stream."""
    return next(_stream_codecs(opened, [name]))


def _stream_codecs(opened: OpenStore[Any], names: Sequence[bytes]) -> Iterator[str | None]:
    for first in range(0, len(names), STREAMS_AT_ONCE):
        some = names[first : first + STREAMS_AT_ONCE]
        yield from opened.view(partial(_codecs_in, names=some))


def _codecs_in(view: snapshot.Snapshot, names: Sequence[bytes]) -> list[str | None]:
    settings = SettingRows(view.index)
    records = (view.record(name) for name in names)
    return [None if each is None else settings.stream(each.number).codec for each in records]


def stream_decoder(opened: OpenStore[Any], name: bytes) -> Callable[[bytes], Any] | None:
    """What decodes the values of a stream: None for what its codec did not store. None: it has no
    codec, or one of somebody's own."""
    return next(stream_decoders(opened, [name]))


def stream_decoders(
    opened: OpenStore[Any], names: Sequence[bytes]
) -> Iterator[Callable[[bytes], Any] | None]:
    """The same of each of several streams."""
    for kept in _stream_codecs(opened, names):
        if kept is None:
            yield None
            continue
        from logstore.api.values import decoder

        yield decoder(kept)


def configure_group(
    opened: OpenStore[T], stream: bytes, name: bytes, changes: dict[str, Any], sync: Sync | None
) -> GroupSettings[T]:
    """One commit; all settings after it."""
    from logstore.engine.features import setting_changes as configures

    step = partial(configures.group, stream=stream, name=name, changes=changes)
    after: GroupSettings[bytes] = opened.commit(step, sync)
    return group_with_text(after, opened.text)


def group_with_text(settings: GroupSettings[bytes], text: Callable[[bytes], T]) -> GroupSettings[T]:
    """Settings of a group with names as users have them."""
    letter = None if settings.dead_letter is None else text(settings.dead_letter)
    return GroupSettings(settings.max_deliveries, letter, *settings[2:])


def stream_settings(opened: OpenStore[Any], name: bytes) -> StreamSettings:
    """The settings of a stream; of one that is not there, those that all have at first."""

    def look(view: snapshot.Snapshot) -> StreamSettings:
        record = view.record(name)
        return StreamSettings() if record is None else SettingRows(view.index).stream(record.number)

    return stream_with_text(opened.view(look), opened.text)


def stream_with_text(settings: StreamSettings, text: Callable[[bytes], Any]) -> StreamSettings:
    """Settings of a stream with the name of a field as users have it."""
    field = settings.compact_by
    return settings._replace(compact_by=text(field)) if isinstance(field, bytes) else settings


def _in_milliseconds(changes: dict[str, Any], name: str) -> None:
    """Have a length of time, if it is given, under its name with the unit."""
    if name in changes:
        length = changes.pop(name)
        whole = None if length is None else arguments.milliseconds(length, name)
        changes[f"{name}_ms"] = whole


def _whole_seconds(length: Length, name: str) -> int:
    length_ms = arguments.milliseconds(length, name)
    if length_ms % 1000:
        raise OptionError(f"{name} must be whole seconds: {shown(length)}")
    return length_ms // 1000
