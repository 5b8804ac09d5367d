"""Values beyond text: codecs, which encode them field by field, and streams that have a codec.

Each value is encoded by itself and names stay text, so that other clients, scans and Spark see the
fields as they are. Adds encode; a value is decoded when it is looked at: one that the codec cannot
read raises for who asks for it, and stops neither a range nor a group.

The codec's name is kept with the stream, with the first add: another codec is refused then, by any
process. A handle without a codec still sees and adds bytes or text, as the clients of Redis do.

Invariants: what a codec takes it gives back equal (a tuple as a list); what it cannot hold is
refused before anything is stored. The codec is kept before the first entry is added through the
handle; nothing is read through it by another codec than that. A stream that is dropped loses it,
and gets it again with the next add. (The look before an add costs one read a handle.) This module
is loaded with the first stream that has a codec.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgpack

from logstore.api import arguments
from logstore.api.adding import AddOptions, RowOptions
from logstore.api.entry import Entry, Fields, IDRuns
from logstore.api.info import StreamInfo
from logstore.api.opening import OpenStore
from logstore.api.scheduling import ScheduledEntry
from logstore.api.stream import Stream
from logstore.codec import RowBatch, codec
from logstore.engine.features import setting_changes
from logstore.engine.streams.add import check_expected
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, shown
from logstore.features.setting_rows import SettingRows
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_id
from logstore.settings import CODEC_NAME_MAX

if TYPE_CHECKING:
    from logstore.codec.entry_objects import EntryMaker
    from logstore.codec.row_batch import Encoders


class CodedStream(Stream[Any]):
    """A :class:`logstore.Stream` whose values are whatever its codec holds."""

    __slots__ = ("_codec", "_kept", "_quick_row", "_values")

    def __init__(self, opened: OpenStore[Any], name: bytes, codec: ValueCodec) -> None:
        super().__init__(opened, name)
        self._codec = Values(codec, opened.encoding)
        self._values = self._codec  # as deliveries look for it in any stream
        self._quick_row = self._codec.quick_row
        self._kept = False  # whether the stream was seen to have the codec

    def __reduce__(self) -> Any:
        return _again, (self._opened, self._name, self._codec.codec)

    # -- adding -------------------------------------------------------------------------------
    def add(self, fields: Any, id: IDLike = "*", *, create: bool = True, **options: Any) -> Any:
        """Add one entry, as ``Stream.add``; EntryTypeError for what the codec cannot hold."""
        try:
            row = self._quick_row(fields)
        except Exception:  # noqa: BLE001  it is no dict, or a value cannot be held, as is told here
            row = self._codec.row(fields)
        if self._kept and create is True and not options:
            asked = (id, None, None, True, None, False)
            made = self._opened.add_plain(self._name, row, asked)
            if made:  # which it is only where there is the stream
                return made
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

    def _made_ready(self, rows: list[Any]) -> RowBatch:
        return self._codec.batch(rows)

    def schedule(self, fields: Any, *, create: bool = True, **options: Any) -> Any:
        """Keep an entry until its time, as ``Stream.schedule``."""
        arguments.check_flag(create, "create")
        row = self._codec.row(fields)
        self._keep(create=create)
        return super().schedule(row, create=create, **options)

    # -- reading ------------------------------------------------------------------------------
    def get(self, id: IDLike) -> Entry[Any] | None:
        """Look an entry up, as ``Stream.get``."""
        self._look()
        entry = super().get(id)
        return None if entry is None else self._codec.view(entry)

    def range(self, *interval: Any, **options: Any) -> Iterator[Entry[Any]]:
        """Entries of an interval, as ``Stream.range``."""
        self._look()
        return super().range(*interval, **options)

    def latest(self, key: Any) -> Entry[Any] | None:
        """The newest entry of a key, as ``Stream.latest``."""
        self._look()
        entry = super().latest(key)
        return None if entry is None else self._codec.view(entry)

    def read(self, *after: Any, **options: Any) -> list[Entry[Any]]:
        """Entries above an ID, as ``Stream.read``."""
        return self._viewed(super().read(*after, **options))

    def follow(self, *after: Any, **options: Any) -> Iterator[Entry[Any]]:
        """Entries above an ID, and all that come, as ``Stream.follow``."""
        return self._lazily(super().follow(*after, **options))

    def scheduled(self) -> Iterator[ScheduledEntry[Any]]:
        """What is scheduled, as ``Stream.scheduled``."""
        for entry in super().scheduled():
            entry._encoding = self._codec
            yield entry

    def info(self) -> StreamInfo[Any]:
        """What ``Stream.info`` tells."""
        told = super().info()
        self._viewed([entry for entry in (told.first_entry, told.last_entry) if entry is not None])
        return told

    def _viewed(self, entries: list[Entry[Any]]) -> list[Entry[Any]]:
        self._look()
        return [self._codec.view(entry) for entry in entries]

    def _lazily(self, entries: Iterator[Entry[Any]]) -> Iterator[Entry[Any]]:
        self._look()
        for entry in entries:
            yield self._codec.view(entry)

    # -- the codec ----------------------------------------------------------------------------
    def _look(self) -> bool:
        """Whether the codec is kept with the stream; OptionError if another one is."""
        if not self._kept:
            kept = _kept(self._opened, self._name)
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


def _kept(opened: OpenStore[Any], name: bytes) -> str | None:
    """The codec that is kept with a stream."""

    def look(view: Any) -> str | None:
        record = view.record(name)
        return None if record is None else SettingRows(view.index).stream(record.number).codec

    return opened.view(look)


def _again(opened: OpenStore[Any], name: bytes, codec: ValueCodec) -> CodedStream:
    return CodedStream(opened, name, codec)


def stream(opened: OpenStore[Any], name: bytes, codec: object) -> CodedStream:
    """A handle of a stream with a codec, by the codec's name or with one's own. OptionError."""
    return CodedStream(opened, name, value_codec(codec))


def as_kept(opened: OpenStore[Any], name: bytes) -> Stream[Any]:
    """A handle with the codec that is kept with the stream, if it is one of those known here."""
    codec = built_in(_kept(opened, name))
    return Stream(opened, name) if codec is None else CodedStream(opened, name, codec)


@runtime_checkable
class ValueCodec(Protocol):
    """A codec of one's own: an object that has these."""

    @property
    def name(self) -> str:
        """What is kept with the stream; whoever opens it with another one is refused."""
        ...

    def encode(self, value: Any) -> bytes:
        """The bytes of a value; any exception says that it cannot be held."""
        ...

    def decode(self, data: bytes) -> Any:
        """The value of these bytes; any exception says that they have none."""
        ...


class Json:
    """JSON text; a datetime, a date and bytes are objects with one name that begins with ``$``."""

    name = "json"
    _GIVEN: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "$datetime": datetime.fromisoformat,
        "$date": date.fromisoformat,
        "$bytes": base64.b64decode,
    }

    def encode(self, value: Any) -> bytes:
        """The JSON text of a value, as UTF-8."""
        text = _JSON(value)
        if '"$' in text:
            _refuse_tags(value)
        try:
            return text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
            return _ASCII(value).encode()

    def decode(self, data: bytes) -> Any:
        """The value of a JSON text."""
        try:
            text = data.decode()
            value, end = (_TAGGED if '"$' in text else _PLAIN).raw_decode(text)
            if end == len(text):
                return value
        except ValueError:
            pass
        # Not as it is written here: in another encoding, with space around it, or no JSON.
        return json.loads(data, object_hook=Json._untagged)

    @staticmethod
    def _tagged(value: Any) -> dict[str, str]:
        if isinstance(value, datetime):
            return {"$datetime": value.isoformat()}
        if isinstance(value, date):
            return {"$date": value.isoformat()}
        if isinstance(value, bytes):
            return {"$bytes": base64.b64encode(value).decode()}
        raise TypeError(f"{type(value).__name__} is not among the types of JSON")

    @staticmethod
    def _untagged(found: dict[str, Any]) -> Any:
        if len(found) == 1:
            ((name, text),) = found.items()
            given = Json._GIVEN.get(name)
            if given is not None:
                return given(text)
        return found


def _refuse_tags(value: Any) -> None:
    """TypeError for a mapping that would be taken for a datetime, a date or bytes."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in Json._GIVEN:
            raise TypeError(f"a mapping whose one name is {next(iter(value))!r} is reserved")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            _refuse_tags(each)


class Msgpack:
    """MessagePack; an aware datetime is its timestamp, and comes back in UTC."""

    name = "msgpack"

    def encode(self, value: Any) -> bytes:
        """The MessagePack of a value."""
        return _packer()(value)

    def decode(self, data: bytes) -> Any:
        """The value of a MessagePack."""
        return _UNPACK(data)


def _packer() -> Callable[[Any], bytes]:
    pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, datetime=True).pack
    return pack


# Made once: json and msgpack make one a call wherever anything is asked of them, and a packer has a
# buffer of 256 KiB.
_JSON = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=Json._tagged
).encode
_ASCII = json.JSONEncoder(separators=(",", ":"), default=Json._tagged).encode
_TAGGED, _PLAIN = json.JSONDecoder(object_hook=Json._untagged), json.JSONDecoder()
_Encoders = codec().Encoders
_PACKERS: Encoders = _Encoders(_packer)
_UNPACK: Callable[[bytes], Any] = codec().Unpacking(msgpack.unpackb).unpack

_BUILT_IN: dict[str, ValueCodec] = {"json": Json(), "msgpack": Msgpack()}


def value_codec(given: object) -> ValueCodec:
    """A codec by its name, or one of the caller's own. OptionError if there is no such codec."""
    if isinstance(given, str):
        if given in _BUILT_IN:
            return _BUILT_IN[given]
        known = " or ".join(map(repr, sorted(_BUILT_IN)))
        raise OptionError(
            f"there is no codec {shown(given)}: give {known}, or an object with name, encode and "
            "decode"
        )
    if isinstance(given, type) or not isinstance(given, ValueCodec):
        raise OptionError(f"a codec is a name or has name, encode and decode: {shown(given)}")
    if not isinstance(given.name, str) or not 1 <= len(given.name) <= CODEC_NAME_MAX:
        raise OptionError(
            f"the name of a codec is a str of 1 to {CODEC_NAME_MAX} characters: {shown(given.name)}"
        )
    if given.name in _BUILT_IN:
        raise OptionError(f"there is a codec {given.name!r} already: call yours otherwise")
    return given


def built_in(name: str | None) -> ValueCodec | None:
    """The codec that is called so here; None if it is somebody's own, or there is none."""
    return None if name is None else _BUILT_IN.get(name)


class Values:
    """How the values of one stream are written and read: its codec, and the store's encoding."""

    __slots__ = (
        "_decode",
        "_encoders",
        "_maker",
        "codec",
        "decode",
        "encoding",
        "make_fields",
        "quick_row",
    )

    def __init__(self, codec: ValueCodec, encoding: str | None) -> None:
        self.codec = codec
        self.encoding = encoding  # of the store; None: what was read is bytes
        # Of MessagePack the library's own functions: a call more is as much as all that they do.
        packs = isinstance(codec, Msgpack)
        self._encoders: Encoders = _PACKERS if packs else _Encoders(lambda: codec.encode)
        self._decode: Callable[[bytes], Any] = _UNPACK if packs else codec.decode
        self.quick_row: Callable[[dict[Any, Any]], Any] = self._encoders.fields
        self.decode: Any = self._decode if encoding is None else self._of_text
        self.make_fields: Any = _make_fields
        self._maker: EntryMaker | None = None

    def __reduce__(self) -> Any:
        return Values, (self.codec, self.encoding)

    @property
    def maker(self) -> EntryMaker:
        """What makes entries of nodes, whose values are decoded when they are looked up."""
        made = self._maker
        if made is None:
            made = self._maker = codec().EntryMaker(Entry, StreamID, self.encoding, self)
        return made

    # -- writing ------------------------------------------------------------------------------
    def row(self, fields: Any) -> Any:
        """The fields of an add with encoded values; what is no row stays as it is, to be refused.

        Raises:
            EntryTypeError: the codec cannot hold a value.
        """
        if type(fields) is dict:
            try:
                return self._encoders.fields(fields)
            except Exception:  # noqa: BLE001  whose value it was is told below
                pass
        if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
            return fields
        pairs: Iterable[Any] = fields.items() if isinstance(fields, Mapping) else fields
        return [
            (pair[0], self._encoded(*pair))
            if isinstance(pair, tuple | list) and len(pair) == 2
            else pair
            for pair in pairs
        ]

    def batch(self, items: Iterable[Any]) -> RowBatch:
        """Rows made ready to be packed, their values encoded on the way.

        Raises:
            EntryTypeError: the codec cannot hold a value; and what ``arguments.rows`` raises.
        """
        rows = list(items)
        if not {dict, list, tuple}.issuperset(map(type, rows)):
            rows = [list(row) if isinstance(row, Iterator) else row for row in rows]
        if self.encoding in (None, "utf-8"):
            try:
                return self._encoders.rows(rows)
            except Exception:  # noqa: BLE001  whose value it was, or what else, is told below
                pass
        return arguments.rows([self.row(row) for row in rows], self.encoding)

    def _encoded(self, name: Any, value: Any) -> bytes:
        try:
            data = self.codec.encode(value)
        except Exception as error:
            raise EntryTypeError(
                f"the codec {self.codec.name!r} cannot hold the value of field {shown(name)}, "
                f"{shown(value)}: {error}; turn it into what it can hold"
            ) from error
        if not isinstance(data, bytes):
            raise EntryTypeError(
                f"the codec {self.codec.name!r} gave {type(data).__name__} and not bytes for field "
                f"{shown(name)}: mend its encode"
            )
        return data

    # -- reading ------------------------------------------------------------------------------
    def decoded(self, name: Any, stored: bytes | str) -> Any:
        """The value of a field as it is stored. InvalidEntryError if the codec cannot read it."""
        try:
            return self.decode(stored)
        except Exception as error:
            raise InvalidEntryError(
                f"the codec {self.codec.name!r} cannot read the value of field {shown(name)}, "
                f"{shown(stored)}: {error}; it was added without the codec: "
                "store.stream(name) without codec= gives it as it is"
            ) from error

    def _of_text(self, stored: str) -> Any:
        """The value of what the store's encoding made text."""
        return self._decode(stored.encode(self.encoding or "utf-8", "surrogateescape"))

    def pairs(self, flat: Sequence[Any]) -> list[tuple[Any, Any]]:
        """All names and values, decoded."""
        try:
            return _decoded_pairs(flat, self.decode)
        except Exception:  # noqa: BLE001  of which field is told here
            return [
                (name, self.decoded(name, stored))
                for name, stored in _decoded_pairs(flat, _as_stored)
            ]

    def view(self, entry: Entry[Any]) -> Entry[Any]:
        """The same entry, whose values are decoded from now on."""
        entry._encoding = self
        return entry


def _as_stored(stored: bytes | str) -> bytes | str:
    return stored


class CodedFields(Fields[Any]):
    """Field names to values of a codec; the last of a repeated name wins. Names are text."""

    __slots__ = ()
    _encoding: Any  # how values are read, where other fields have the store's encoding

    def _stored(self, key: Any) -> Any:
        """The value of a field as it is stored. KeyError."""
        if isinstance(key, bytes):
            key = key.decode(self._encoding.encoding or "utf-8", "surrogateescape")
        return self._items[key]

    def __getitem__(self, key: Any) -> Any:
        return self._encoding.decoded(key, self._stored(key))

    def __contains__(self, key: object) -> bool:
        try:
            self._stored(key)
        except KeyError:
            return False
        return True

    def _readable(self) -> dict[str, Any]:
        """The values, or what is stored where the codec cannot read it: to be shown."""
        shown_fields: dict[str, Any] = {}
        for name, stored in self._items.items():
            try:
                shown_fields[name] = self._encoding.decoded(name, stored)
            except InvalidEntryError:
                shown_fields[name] = stored
        return shown_fields


_make_fields = codec().FieldsMaker(CodedFields, True).make
_decoded_pairs = codec().decoded_pairs
