"""Values beyond text: a codec turns values into bytes, field by field, and back.

Each value is encoded by itself and names stay text, so that other clients, scans and Spark see the
fields as they are. A value is decoded when it is looked at: one that the codec cannot read raises
an error there, and stops neither a range nor a group.

Invariants: a codec gives back what it took (a tuple as a list). What it cannot hold is refused
before anything is stored. This module is loaded with the first stream that has a codec.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgpack

from logstore.api import arguments
from logstore.api.entry import Entry, Fields
from logstore.codec import RowBatch, codec
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, SchemaError, shown
from logstore.features.typed_rows import row_writer
from logstore.ids import StreamID
from logstore.options import CODEC_NAME_MAX

if TYPE_CHECKING:
    from logstore.api.scheduling import ScheduledEntry
    from logstore.codec.entry_objects import EntryMaker
    from logstore.codec.row_batch import Encoders
    from logstore.schema.stream_schema import Schema


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


@cache
def decoder(name: str) -> Callable[[bytes], Any] | None:
    """What gives the value of what the codec of this name stored, None for what it did not; None if
    it is somebody's own."""
    codec = built_in(name)
    return None if codec is None else partial(decoded_or_none, codec.decode)


def json_text(codec: ValueCodec, stored: bytes) -> str:
    """What a codec stored as JSON, in which moments, days and bytes are as the codec "json" has
    them. Raises whatever the codec does for what it did not store, and ValueError or TypeError for
    what JSON cannot hold."""
    return _BUILT_IN["json"].encode(codec.decode(stored)).decode()


def typed_text(codec: ValueCodec, stored: bytes) -> str | None:
    """What a codec stored as people type it: JSON, but a text that is no JSON as it is, and a
    moment, a day and bytes as text; None for what it did not store. `typed_value` reads it."""
    from logstore.scan.conversion import value_text

    try:
        value = codec.decode(stored)
        if isinstance(value, str):
            return value if typed_value(value.encode()) == value else json_text(codec, stored)
        return "null" if value is None else value_text(value)
    except Exception:  # noqa: BLE001  whatever a codec of the user's raises
        return None


def typed_value(text: bytes) -> Any:
    """What somebody typed as a value: of JSON if it is that, else text. UnicodeDecodeError."""
    try:
        found = Json().decode(text)
    except (ValueError, RecursionError):
        return text.decode()
    is_number = not isinstance(found, float) or isfinite(found)
    return found if is_number else text.decode()  # NaN is a word, to JSON


def typed_bytes(codec: ValueCodec, text: bytes) -> bytes:
    """What a codec stores of what somebody typed. ValueError, TypeError for what it cannot hold."""
    return codec.encode(typed_value(text))


def decoded_or_none(decode: Callable[[bytes], Any], stored: bytes) -> Any:
    """What a codec stored; None for what it did not."""
    try:
        return decode(stored)
    except Exception:  # noqa: BLE001  whatever a codec of the user's raises
        return None


class _Reading:
    """What makes entries whose values are read, by this object, when they are looked up."""

    __slots__ = ("_maker", "encoding", "schema_at")

    def __init__(self, encoding: str | None, schema_at: int = 0) -> None:
        self.encoding = encoding  # of the store; None: what was read is bytes
        self.schema_at = schema_at  # of the schema by which rows are written; 0: of none
        self._maker: EntryMaker | None = None

    @property
    def maker(self) -> EntryMaker:
        """What makes entries of nodes."""
        made = self._maker
        if made is None:
            made = self._maker = codec().EntryMaker(Entry, StreamID, self.encoding, self)
        return made

    def view(self, entry: Entry[Any]) -> Entry[Any]:
        """The same entry, whose values are read by this from now on."""
        entry._encoding = self  # type: ignore[assignment]
        return entry

    def view_scheduled(self, entry: ScheduledEntry[Any]) -> ScheduledEntry[Any]:
        """The same of a scheduled entry."""
        entry._encoding = self  # type: ignore[assignment]
        return entry


class Values(_Reading):
    """How the values of one stream are written and read: its codec, and the store's encoding."""

    __slots__ = (
        "_decode",
        "_encoders",
        "codec",
        "decode",
        "make_fields",
        "quick_row",
    )

    def __init__(self, codec: ValueCodec, encoding: str | None) -> None:
        super().__init__(encoding)
        self.codec = codec
        # Of MessagePack the library's own functions: a call more is as much as all that they do.
        packs = isinstance(codec, Msgpack)
        self._encoders: Encoders = _PACKERS if packs else _Encoders(lambda: codec.encode)
        self._decode: Callable[[bytes], Any] = _UNPACK if packs else codec.decode
        self.quick_row: Callable[[Any], Any] = self._encoders.fields  # raises if it is no dict
        self.decode: Any = self._decode if encoding is None else self._of_text
        self.make_fields: Any = _make_fields

    def __reduce__(self) -> Any:
        return Values, (self.codec, self.encoding)

    # -- writing ------------------------------------------------------------------------------
    def row(self, fields: Any) -> Any:
        """The fields of an add with encoded values; what is no row stays as it is, to be refused.

        Raises:
            EntryTypeError: the codec cannot hold a value.
        """
        if type(fields) is dict:
            try:
                return self._encoders.fields(fields)
            except Exception:  # noqa: BLE001  the code below says whose value it was
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

    def condition(self, where: Mapping[Any, Any]) -> Any:
        """The fields of a condition, encoded. EntryTypeError."""
        return self.row(where)

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
            except Exception:  # noqa: BLE001  the code below says what it was
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

    def all_plain(self, rows: list[Any]) -> None:  # noqa: ARG002
        """Rows as they are added beside the pipeline: these are not."""
        return

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
        except Exception:  # noqa: BLE001  this says of which field
            return [
                (name, self.decoded(name, stored))
                for name, stored in _decoded_pairs(flat, _as_stored)
            ]


class TypedValues(_Reading):
    """How the values of one stream are written and read: by its schema, field by field.

    A field that is no column has what is stored.
    """

    __slots__ = ("_plain_text", "_types", "_write", "decode", "make_fields", "schema")

    def __init__(self, schema: Schema, schema_at: int, encoding: str | None) -> None:
        super().__init__(encoding, schema_at)
        self.schema = schema
        self._write = row_writer(schema).fields
        self._plain_text = encoding in {None, "utf-8"}
        self.make_fields: Any = _make_fields
        self.decode: Any = _unnamed  # a value has its type by its name: see ``decoded``
        self._types = {column.name: column.type for column in schema.columns}

    def __reduce__(self) -> Any:
        return _typed_again, (self.schema.text, self.schema_at, self.encoding)

    def row(self, fields: Any) -> Any:
        """The fields of an add as they are stored.

        Raises:
            SchemaError: the row does not fit.
            InvalidEntryError, EntryTypeError, TooLargeError: it is no row.
        """
        if type(fields) is dict and self._plain_text:
            return self._write(fields)
        pairs = _pairs_of(fields)
        if pairs is None:
            flat = arguments.rows([fields], self.encoding).flat(0)
            pairs = zip(flat[::2], flat[1::2], strict=True)
        return self.schema.row(pairs)

    def plain(self, fields: Any) -> dict[Any, Any] | tuple[Any, ...] | None:
        """A row as it is added beside the pipeline; None if it goes through that. SchemaError."""
        if type(fields) is not dict:
            return None
        row = self._write(fields)
        if type(row) is dict:
            return row
        flat = tuple(part for pair in row for part in pair)
        return flat if {bytes}.issuperset(map(type, flat)) else None

    def all_plain(self, rows: list[Any]) -> list[dict[Any, Any]] | None:
        """The same of all these; None if one is not a dict, or not one then. SchemaError."""
        if not {dict}.issuperset(map(type, rows)):
            return None
        made: list[Any] = []
        for row in self._rows(rows):
            if type(row) is not dict:
                return None
            made.append(row)
        return made

    def _rows(self, items: Iterable[Any]) -> Iterator[Any]:
        """Rows as they are stored. SchemaError that names the row."""
        for at, item in enumerate(items):
            try:
                yield self.row(item)
            except SchemaError as error:
                raise SchemaError(f"row {at}: {error.message}") from None

    def condition(self, where: Mapping[Any, Any]) -> Any:
        """The fields of a condition as they are stored. SchemaError for a value of another type."""
        return self.schema.condition(where.items())

    def batch(self, items: Iterable[Any]) -> RowBatch:
        """Rows made ready to be packed. SchemaError; and what ``arguments.rows`` raises."""
        return arguments.rows(list(self._rows(items)), self.encoding)

    def decoded(self, name: str, stored: bytes | str) -> Any:
        """The value of a field as it is stored. InvalidEntryError if it is not of its type."""
        kind = self._types.get(name)
        if kind is None:
            return stored
        text = stored if isinstance(stored, bytes) else self._encoded(stored)
        try:
            return kind.read(text)
        except ValueError as error:
            raise InvalidEntryError(
                f"column {name!r} is {kind.name}: {shown(text)} {error}; it was written by another "
                "schema, or moved as it was: look it up again, or widen the column to string"
            ) from None

    def _encoded(self, stored: str) -> bytes:
        return stored.encode(self.encoding or "utf-8", "surrogateescape")

    def pairs(self, flat: Sequence[Any]) -> list[tuple[Any, Any]]:
        """All names and values."""
        found = _decoded_pairs(flat, _as_stored)
        return [(name, self.decoded(name, stored)) for name, stored in found]


def _pairs_of(fields: Any) -> Iterable[Any] | None:
    """The pairs of a row with names of text; None if it is none."""
    if isinstance(fields, Mapping):
        fields = fields.items()
    if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
        return None
    pairs = list(fields)
    whole = all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str | bytes)
        for pair in pairs
    )
    return pairs if whole else None


def _unnamed(stored: object) -> Any:
    raise LookupError(stored)


def _typed_again(text: str, schema_at: int, encoding: str | None) -> TypedValues:
    from logstore.schema.schema_text import parse

    return TypedValues(parse(text), schema_at, encoding)


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
