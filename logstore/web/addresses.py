"""Names of streams in addresses: text where they are text, else their bytes in hex."""

from __future__ import annotations

from logstore.errors import OptionError

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
