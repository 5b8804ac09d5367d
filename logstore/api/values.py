"""Values beyond text: a codec turns what a program holds into bytes, field by field, and back.

Each value is encoded by itself and names stay text, so that other clients, scans and Spark see the
fields as they are. Entries are decoded when they are looked at: a value that the codec cannot read
raises for who asks for it, and stops neither a range nor a group.

Invariants: what a codec takes it gives back equal (a tuple as a list); what it cannot hold is
refused before anything is stored. It is loaded with the first stream that has a codec.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgpack

from logstore.api import arguments
from logstore.api.entry import Entry, Fields, shown_name
from logstore.codec.bulk_ids import has_id
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, shown
from logstore.settings import CODEC_NAME_MAX


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
        if b'"$' not in data:
            return json.loads(data)
        return _JSON_VALUE(data.decode())

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
        try:
            pack = _packers.pack
        except AttributeError:
            pack = _packers.pack = msgpack.Packer(use_bin_type=True, datetime=True).pack
        packed: bytes = pack(value)
        return packed

    def decode(self, data: bytes) -> Any:
        """The value of a MessagePack."""
        return msgpack.unpackb(data, raw=False, timestamp=3, strict_map_key=False)


# Made once: json and msgpack make one a call wherever anything is asked of them, and a packer has a
# buffer of 256 KiB.
_JSON = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=Json._tagged
).encode
_ASCII = json.JSONEncoder(separators=(",", ":"), default=Json._tagged).encode
_JSON_VALUE = json.JSONDecoder(object_hook=Json._untagged).decode
_packers = threading.local()

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

    __slots__ = ("_encoding", "codec")

    def __init__(self, codec: ValueCodec, encoding: str | None) -> None:
        self.codec = codec
        self._encoding = encoding

    @property
    def encoding(self) -> str | None:
        """The store's encoding; None: what was read is bytes."""
        return self._encoding

    def row(self, fields: Any) -> Any:
        """The fields of an add with encoded values; what is no row stays as it is, to be refused.

        Raises:
            EntryTypeError: the codec cannot hold a value.
        """
        if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
            return fields
        pairs: Iterable[Any] = fields.items() if isinstance(fields, Mapping) else fields
        return [
            (pair[0], self._encoded(*pair))
            if isinstance(pair, tuple | list) and len(pair) == 2
            else pair
            for pair in pairs
        ]

    def rows(self, rows: Any) -> Iterator[Any]:
        """The rows of an add of many with encoded values, each taken when it is its turn."""
        for row in arguments.iterated(rows):
            yield (row[0], self.row(row[1])) if has_id(row) else self.row(row)

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

    def decoded(self, name: Any, stored: bytes | str) -> Any:
        """The value of a field as it is stored. InvalidEntryError if the codec cannot read it."""
        data = stored
        if isinstance(data, str):
            data = data.encode(self.encoding or "utf-8", "surrogateescape")
        try:
            return self.codec.decode(data)
        except Exception as error:
            raise InvalidEntryError(
                f"the codec {self.codec.name!r} cannot read the value of field {shown(name)}, "
                f"{shown(stored)}: {error}; it was added without the codec: "
                "store.stream(name) without codec= gives it as it is"
            ) from error

    def name(self, stored: bytes | str) -> str:
        """A field's name as text."""
        return stored if isinstance(stored, str) else shown_name(stored)

    def fields(self, flat: Sequence[Any]) -> Fields[Any]:
        """The fields of an entry, decoded one by one as they are looked up."""
        return CodedFields(flat, self)

    def pairs(self, flat: Sequence[Any]) -> list[tuple[Any, Any]]:
        """All names and values, decoded."""
        return [
            (self.name(name), self.decoded(name, value))
            for name, value in zip(flat[::2], flat[1::2], strict=True)
        ]

    def view(self, entry: Entry[Any]) -> Entry[Any]:
        """The same entry, whose values are decoded from now on."""
        entry._encoding = self
        return entry


class CodedFields(Fields[Any]):
    """Field names to values of a codec; the last of a repeated name wins."""

    __slots__ = ("_values",)

    def __init__(self, flat: Sequence[Any], values: Values) -> None:
        self._values = values
        names = [values.name(name) for name in flat[::2]]
        self._encoding = values.encoding or "utf-8"
        self._items = dict(zip(names, flat[1::2], strict=True))

    def __getitem__(self, key: Any) -> Any:
        return self._values.decoded(key, super().__getitem__(key))

    def __contains__(self, key: object) -> bool:
        return key in self._items or (
            isinstance(key, bytes) and key.decode(self._encoding or "", "surrogateescape") in self
        )

    def _readable(self) -> dict[str, Any]:
        """The values, or what is stored where the codec cannot read it: to be shown."""
        shown_fields: dict[str, Any] = {}
        for name, stored in self._items.items():
            try:
                shown_fields[name] = self._values.decoded(name, stored)
            except InvalidEntryError:
                shown_fields[name] = stored
        return shown_fields
