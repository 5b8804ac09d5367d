"""Entries that know their own fields: a checksum of names and values stands among them.

So any mix-up is seen, wherever the entry is read: names of one entry with values of another, a
value that was cut, a field that is missing.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any

# Most are of one width, so that nothing but the names themselves tells them apart.
SHAPES: tuple[tuple[Any, ...], ...] = (
    ("temp", "hum"), ("lat", "lon"), ("hum", "temp"), (b"temp", b"rain"), (1, 2), ("a", "b", "c"),
)  # fmt: skip
SEAL = "seal"


def _bytes(part: object) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def _seal(pairs: Mapping[bytes, bytes]) -> bytes:
    return b"%08x" % zlib.crc32(repr(sorted(pairs.items())).encode())


def entry(names: tuple[Any, ...], values: list[Any], *, fresh: bool = True) -> dict[Any, Any]:
    """An entry with its seal. ``fresh``: no name is an object that another entry has."""
    made = dict(zip(names, values, strict=True))
    made[SEAL] = _seal({_bytes(name): _bytes(value) for name, value in made.items()}).decode()
    return {_copy(name): value for name, value in made.items()} if fresh else made


def any_entry(rng: random.Random) -> dict[Any, Any]:
    """An entry of some shape."""
    names = rng.choice(SHAPES)
    values: list[Any] = [
        rng.choice(
            [
                str(rng.randrange(1000)),
                rng.randrange(1 << 40),
                b"v" * rng.randrange(30),
                rng.random(),
                "\xfc" * rng.randrange(9),
            ]
        )
        for _ in names
    ]
    return entry(names, values, fresh=rng.random() < 0.5)


def _copy(name: Any) -> Any:
    if isinstance(name, str):
        return "".join(list(name))
    return bytes(bytearray(name)) if isinstance(name, bytes) else int(str(name))


def as_read(fields: Mapping[Any, Any]) -> dict[bytes, bytes]:
    """The fields as bytes, as a store without an encoding gives them."""
    return {_bytes(name): _bytes(value) for name, value in fields.items()}


def check(fields: Mapping[Any, Any]) -> None:
    """Fail if an entry has other names or values than it was made with."""
    pairs = as_read(fields)
    seal = pairs.pop(SEAL.encode(), None)
    assert seal == _seal(pairs), f"an entry was mixed up: {dict(fields)}"
