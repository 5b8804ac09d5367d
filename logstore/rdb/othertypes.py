"""Values of RDB that are no streams: passed over by their lengths, or refused by name.

Invariants: nothing of a value is kept; a type whose layout is not known is refused, since nobody
knows where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.rdb.reader import Reader
from logstore.rdb.streamtypes import VALKEY_VERSION

NAMES: Final = {
    0: "string", 1: "list", 2: "set", 3: "sorted set", 4: "hash", 5: "sorted set", 6: "module",
    7: "module", 9: "hash", 10: "list", 11: "set", 12: "sorted set", 13: "hash", 14: "list",
    15: "stream", 16: "hash", 17: "sorted set", 18: "list", 19: "stream", 20: "set", 21: "stream",
    22: "hash", 23: "hash", 24: "hash", 25: "hash", 26: "stream", 27: "stream",
}  # fmt: skip
_SCORE_MAX_BYTES = 252  # 253 to 255 stand for what is no number, and have no bytes
_MODULE_END, _MODULE_FLOAT, _MODULE_DOUBLE, _MODULE_STRING = 0, 3, 4, 5
_MODULE_NUMBERS = (1, 2)


def name(kind: int) -> str:
    """What a type is called."""
    return NAMES.get(kind, f"type {kind}")


def skip(reader: Reader, kind: int, version: int) -> None:
    """Pass over a value; InvalidPayloadError for a type that is not known."""
    step = _VALKEY.get(kind) if version >= VALKEY_VERSION else _REDIS.get(kind)
    step = step or _SKIPPED.get(kind)
    if step is None:
        raise reader.error(
            f"a value of type {kind} ({name(kind)}), whose layout is not known: remove keys of "
            "that kind from the server before it saves"
        )
    step(reader)


def skip_module(reader: Reader) -> None:
    """Pass over what a module wrote, up to its end mark."""
    while (opcode := reader.length()) != _MODULE_END:
        if opcode in _MODULE_NUMBERS:
            reader.length()
        elif opcode == _MODULE_FLOAT:
            reader.skip(4)
        elif opcode == _MODULE_DOUBLE:
            reader.skip(8)
        elif opcode == _MODULE_STRING:
            reader.skip_string()
        else:
            raise reader.error(f"a module wrote the unknown mark {opcode}")


def _strings(each: int) -> Callable[[Reader], None]:
    """So many strings for each item that is counted."""

    def step(reader: Reader) -> None:
        left = reader.length()
        while left:
            for _ in range(each):
                reader.skip_string()
            left -= 1

    return step


def _old_scores(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        size = reader.byte()
        reader.skip(size if size <= _SCORE_MAX_BYTES else 0)
        left -= 1


def _scores(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        reader.skip(8)
        left -= 1


def _quicklist(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.length()
        reader.skip_string()
        left -= 1


def _expiring_hash(reader: Reader) -> None:
    reader.skip(8)
    left = reader.length()
    while left:
        reader.length()
        reader.skip_string()
        reader.skip_string()
        left -= 1


def _expiring_listpack(reader: Reader) -> None:
    reader.skip(8)
    reader.skip_string()


def _valkey_hash(reader: Reader) -> None:
    left = reader.length()
    while left:
        reader.skip_string()
        reader.skip_string()
        reader.skip(8)
        left -= 1


def _module(reader: Reader) -> None:
    reader.length()
    skip_module(reader)


Step = Callable[[Reader], None]
_SKIPPED: Final[dict[int, Step]] = {
    **dict.fromkeys((0, 9, 10, 11, 12, 13, 16, 17, 20), Reader.skip_string),
    **dict.fromkeys((1, 2, 14), _strings(1)),
    3: _old_scores, 4: _strings(2), 5: _scores, 7: _module, 18: _quicklist,
}  # fmt: skip
_REDIS: Final[dict[int, Step]] = {24: _expiring_hash, 25: _expiring_listpack}
_VALKEY: Final[dict[int, Step]] = {22: _valkey_hash}
