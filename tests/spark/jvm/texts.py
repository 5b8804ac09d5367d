"""Texts that are values of some type, or nearly, and values as the process writes them."""

from __future__ import annotations

import struct
from typing import Any

FLOATING = ("float", "double")
# What texts of all types are made of, so that each type sees those that are nearly its own.
PIECES = (
    *"0123456789", *"+-.eExX:TZ _()\0", "00", "000000", "0x", "inf", "NaN", "infinity", "nan(",
    "true", "False", "2024-02-29", "1970-01-01", "9999-12-31", "23:59:59", "T00:00", " 12",
    ".123456", "+01:30", "-2330", "e-", "E+", "e308", "1e-", "99", "127", "128", "32768",
    "2147483648", "9223372036854775807", "9223372036854775808", "4503599627370497",
    "340282346638528859811704183484516925440", "é", "٣", "d",
)  # fmt: skip
WHOLE_TEXTS = (
    "", "0", "-0", "-1", "127", "-128", "32767", "-32769", "2147483647", "9223372036854775807",
    "-9223372036854775808", "0x7f", "0XFFFFFFFFFFFFFFFF", "1.5", "-0.25", "21.53", ".5", "5.",
    "1e5", "1E-400", "2.2250738585072011e-308", "179769313486231580793e289", "0.1234567890123456",
    "true", "FALSE", "2024-01-01", "2024-01-01 00:00:00.123456Z", "2024-01-01T00:00:00.123Z",
    "2024-01-01 23:59", "2023-02-28T12:30:45.123456789+05:30", "0000-01-01 00",
    "9999-12-31T23:59:59-2359", "nan", "-inf", "1234567890123456789.012", "123.4500", "1e-2",
    "99999999999999999999999999999999999999", "12e30",
)  # fmt: skip


def plain(kind: str, value: Any) -> str:
    """A value as the process writes it."""
    if kind in FLOATING:
        form = ">i" if kind == "float" else ">q"
        (bits,) = struct.unpack(form, struct.pack(form.replace("i", "f").replace("q", "d"), value))
        return str(bits)
    if kind.startswith("decimal"):
        sign, digits, _ = value.as_tuple()
        return str((-1 if sign else 1) * int("".join(map(str, digits))))
    if kind == "binary":
        return str(value.hex())
    return str(value).lower() if kind == "boolean" else str(value)
