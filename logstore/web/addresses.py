"""Addresses, and the names of streams and IDs in them.

A name is its text, or its bytes in hex if they are no text.
"""

from __future__ import annotations

from urllib.parse import urlencode

from logstore.errors import InvalidIDError, OptionError
from logstore.ids import StreamID, parse_id

HEX = "0x"


def key_of(name: bytes) -> str:
    """A name in an address: its text, or ``0x`` and its bytes in hex if they are not UTF-8."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return HEX + name.hex()
    return HEX + name.hex() if text.startswith(HEX) else text


def name_of(key: str) -> bytes:
    """The name in an address; OptionError for one that `key_of` never makes."""
    try:
        return bytes.fromhex(key[len(HEX) :]) if key.startswith(HEX) else key.encode()
    except ValueError as exc:
        raise OptionError("no stream has this name") from exc


def id_of(text: str) -> StreamID | None:
    """The ID in an address; None if it is none."""
    try:
        return parse_id(text.strip()) if "-" in text else None
    except InvalidIDError:
        return None


def link(path: str, **values: object) -> str:
    """An address of this server; what is nothing is left out."""
    query = urlencode({name: str(value) for name, value in values.items() if value})
    return f"{path}?{query}" if query else path
