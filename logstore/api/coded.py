"""A stream with a codec of values: adds encode, and a value is decoded when it is looked at.

The first add keeps the codec's name with the stream: any process that comes with another codec is
refused then. A handle without a codec still sees and adds bytes or text, as the clients of Redis
do.

Invariants: the codec is kept before the first entry is added through the handle; nothing is read
through it by another codec. A stream that is dropped loses its codec, and gets it again with the
next add. (The check before an add costs one read a handle.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from logstore.api import arguments
from logstore.api.arguments import AddOptions, RowOptions
from logstore.api.configuring import StreamOptions, stream_codec
from logstore.api.entry import IDRuns
from logstore.api.opening import OpenStore
from logstore.api.scheduling import ScheduleKey, ScheduleOptions
from logstore.api.stream import Stream
from logstore.api.values import ValueCodec, Values, built_in, typed_value, value_codec
from logstore.codec import Row
from logstore.engine.features import setting_changes
from logstore.engine.streams.add import check_expected
from logstore.errors import EntryTypeError, OptionError, shown
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_id
from logstore.options import StreamSettings, Sync

if TYPE_CHECKING:
    from logstore.api.entry_reads import Matching, Where


class CodedStream(Stream[Any]):
    """A :class:`logstore.Stream` whose values are whatever its codec holds."""

    __slots__ = ("_codec", "_kept", "_quick_row")

    def __init__(self, opened: OpenStore[Any], name: bytes, codec: ValueCodec) -> None:
        super().__init__(opened, name)
        self._codec = Values(codec, opened.encoding)
        self._quick_row = self._codec.quick_row
        self._kept = False  # whether the stream was seen to have the codec

    def __reduce__(self) -> Any:
        return _again, (self._opened, self._name, self._codec.codec)

    @property
    def _values(self) -> Values:
        """The codec's. OptionError if the stream has another one."""
        self._look()
        return self._codec

    # -- settings -----------------------------------------------------------------------------
    def configure(
        self, *, create: bool = True, sync: Sync | None = None, **options: Unpack[StreamOptions]
    ) -> StreamSettings:
        """Set what is kept with the stream, as ``Stream.configure``; OptionError for a schema."""
        if options.get("schema") is not None:
            raise OptionError(
                f"this handle has the codec {self._codec.codec.name!r}, which says how values are "
                "written: set the schema with store.stream(name), without codec="
            )
        return super().configure(create=create, sync=sync, **options)

    # -- adding -------------------------------------------------------------------------------
    @overload
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        create: Literal[True] = True,
        **options: Unpack[AddOptions],
    ) -> StreamID: ...
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool, **options: Unpack[AddOptions]
    ) -> StreamID | None: ...
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool = True, **options: Unpack[AddOptions]
    ) -> StreamID | None:
        """Add one entry, as ``Stream.add``; EntryTypeError for what the codec cannot hold."""
        try:
            row = self._quick_row(fields)
        except Exception:  # noqa: BLE001  no dict, or a value that cannot be held
            row = self._codec.row(fields)
        if self._kept and create is True and not options:
            asked = (id, None, None, True, None, False)
            made = self._opened.add_plain(self._name, row, asked)
            if made:  # which it is only where there is the stream
                return made
            if self._opened.schema_at(self._name):  # another stream by now: looked at once more
                self._kept = False
        arguments.check_names(options, AddOptions, "add")
        arguments.check_flag(create, "create")
        self._keep(create=create, expected=options.get("expected_last_id"))
        added = super().add(row, id, create=False, **options)
        if added is None and create:  # it was dropped since
            self._kept = False
            self._keep(create=True)
            added = super().add(row, id, **options)
        return added

    def _adding(
        self, given: IDRuns, rows: Any, batch: int, create: bool, options: RowOptions
    ) -> Iterator[bool]:
        arguments.check_flag(create, "create")
        self._kept = False  # a look for a call, in which many rows come
        self._keep(create=create, expected=options.get("expected_last_id"))
        yield from super()._adding(given, rows, batch, create, options)

    @overload
    def schedule(
        self, fields: Row, *, create: Literal[True] = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey: ...
    @overload
    def schedule(
        self, fields: Row, *, create: bool, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None: ...
    def schedule(
        self, fields: Row, *, create: bool = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None:
        """Keep an entry until its time, as ``Stream.schedule``."""
        arguments.check_flag(create, "create")
        row = self._codec.row(fields)
        self._keep(create=create)
        return super().schedule(row, create=create, **options)

    # -- the codec ----------------------------------------------------------------------------
    def _look(self) -> bool:
        """Whether the codec is kept with the stream; OptionError if another one is."""
        if not self._kept:
            kept = stream_codec(self._opened, self._name)
            setting_changes.check_codec(kept, self._codec.codec.name)
            self._kept = kept is not None
        return self._kept

    def _keep(self, *, create: bool, expected: IDLike | None = None) -> None:
        """Have the codec kept with the stream; without ``create`` if there is one.

        LastIDConflictError if the add expects a stream that is not there: none is made for it.
        """
        if not self._look():
            if expected is not None and self._opened.record(self._name) is None:
                check_expected(self._name, parse_id(expected), ZERO_ID)
            step = partial(
                setting_changes.keep_codec,
                name=self._name,
                codec=self._codec.codec.name,
                create=create,
            )
            self._kept = self._opened.commit(step)


def _again(opened: OpenStore[Any], name: bytes, codec: ValueCodec) -> CodedStream:
    return CodedStream(opened, name, codec)


def typed_fields(
    stream: Stream[Any], pairs: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, Any]]:
    """Fields as somebody typed them, as what the stream takes: with a codec values of JSON, and
    text where it is no JSON. EntryTypeError for what is no UTF-8."""
    if not isinstance(stream, CodedStream):
        return list(pairs)
    return [(name, _typed(name, text)) for name, text in pairs]


def _typed(name: bytes, text: bytes) -> Any:
    try:
        return typed_value(text)
    except UnicodeDecodeError:
        raise EntryTypeError(
            f"the value of field {shown(name)}, {shown(text)}, is no UTF-8, which the text of a "
            'codec is: give JSON, such as {"$bytes": "/w=="}'
        ) from None


def stream(opened: OpenStore[Any], name: bytes, codec: object) -> CodedStream:
    """A handle of a stream with a codec, by the codec's name or with one's own. OptionError."""
    return CodedStream(opened, name, value_codec(codec))


def matching_of(stream: Stream[Any], where: Where | None) -> Matching | None:
    """What finds the entries of a stream that match, as its ``range`` does."""
    return stream._matching(where)


def kept_codec(opened: OpenStore[Any], name: bytes) -> ValueCodec | None:
    """The codec that is kept with a stream, if it is one of those known here."""
    return built_in(stream_codec(opened, name))


def as_kept(opened: OpenStore[Any], name: bytes) -> Stream[Any]:
    """A handle with the codec that is kept with the stream, if it is one of those known here."""
    codec = kept_codec(opened, name)
    return Stream(opened, name) if codec is None else CodedStream(opened, name, codec)
