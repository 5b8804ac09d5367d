"""Values of a stream with a codec of values: encoded entry by entry, found by name.

Invariants: what an encoder raises is raised as it is, by whoever knows which field it was; of a
repeated name the last value counts. It may not know what an encoder is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from logstore.codec.bulk import RowBatch, encoded_value, rows
from logstore.codec.interface import Row


class Encoders:
    """Encoders of one kind. Each call has one to itself, whatever thread makes it, for encoders may
    have a buffer; one that raised is used no more.
    """

    __slots__ = ("_free", "_make")

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = make
        self._free: list[Callable[[Any], Any]] = []  # that nobody uses now

    def _encoder(self) -> Callable[[Any], Any]:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def fields(self, fields: dict[Any, Any]) -> dict[Any, bytes]:
        """An entry with the bytes of its values. TypeError for what is no dict."""
        if type(fields) is not dict:
            raise TypeError("the fields are no dict")
        encode = self._encoder()
        made = {name: encoded_value(encode, value) for name, value in fields.items()}
        self._free.append(encode)
        return made

    def rows(self, items: Iterable[Row]) -> RowBatch:
        """Rows made ready, as ``bulk.rows`` does it with an encoder."""
        encode = self._encoder()
        made = rows(items, encode)
        self._free.append(encode)
        return made


class Unpacking:
    """MessagePack's ``unpackb`` with the options of ours, which cost as much as a small value."""

    __slots__ = ("_unpackb",)

    def __init__(self, unpackb: Callable[..., Any]) -> None:
        self._unpackb = unpackb

    def unpack(self, data: bytes) -> Any:
        """The value of a MessagePack."""
        return self._unpackb(data, timestamp=3, strict_map_key=False)


def text_of(name: bytes | str) -> str:
    """The name of a field as text."""
    return name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")


def decoded_pairs(flat: Sequence[Any], decode: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """Names as text, and values as ``decode`` gives them; what it raises is raised as it is.

    ValueError if a field has no value.
    """
    if len(flat) % 2:
        raise ValueError("a field has no value")
    return [
        (text_of(name), decode(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def field_value(flat: Sequence[Any], name: object, reading: Any, missing: Any) -> Any:
    """The value of a field, of field, value, field, value, ..; text in ASCII finds bytes as well.

    ``reading`` is None, an encoding, or has ``decode``, which makes the value of what is stored;
    ``missing`` is for what is not there, or must be looked for by who knows the encoding.
    """
    ascii_name = name.encode() if type(name) is str and name.isascii() else None
    if type(name) not in (str, bytes) or type(flat) not in (tuple, list):
        return missing
    for at in range(len(flat) - 2, -1, -2):
        part = flat[at]
        if part == name if type(part) is type(name) else type(part) is bytes and part == ascii_name:
            stored = flat[at + 1]
            return stored if reading is None or type(reading) is str else reading.decode(stored)
    return missing
