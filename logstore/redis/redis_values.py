"""Replies as redis-py's parsers give them, without the bytes in between.

Invariant: ``value_of(reply, protocol, ...)`` is what redis-py makes of ``encode(reply, protocol)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError

from logstore.wire.resp.reply import (
    BREAKS,
    Failure,
    NullArray,
    Ordered,
    Pairs,
    Push,
    Reply,
    Simple,
    Verbatim,
    told,
)

Decode = Callable[[bytes], Any]


def value_of(reply: Reply, protocol: int, decode: Decode | None) -> Any:
    """What the client gets; an error as an exception, raised if it ends the connection."""
    kind = type(reply)
    if kind is bytes:
        return reply if decode is None else decode(reply)
    if reply is None or kind is int:
        return reply
    if kind is list or isinstance(reply, list | tuple):
        return [value_of(each, protocol, decode) for each in reply]
    return _rare(reply, protocol, decode)


def _rare(reply: Reply, protocol: int, decode: Decode | None) -> Any:
    match reply:
        case Simple() | Verbatim():
            text = reply.text if isinstance(reply, Verbatim) else reply.text.translate(BREAKS)
            return text if decode is None else decode(text)
        case Failure():
            return _error(told(reply).decode("utf-8", "replace"))
        case NullArray():
            return None
        case Push():
            raise TypeError("nothing is told out of band")
        case dict() | set() | frozenset() | Ordered():
            return _collected(reply, protocol, decode)
        case Pairs():
            pairs = value_of(reply.items, protocol, decode)
            return dict(pairs) if protocol == 3 else pairs
        case bool():
            return reply if protocol == 3 else int(reply)
        case float():
            return reply if protocol == 3 else value_of(b"%.17g" % reply, protocol, decode)
        case int():
            return int(reply)
        case _:
            raise TypeError(f"no reply: {type(reply).__name__}")


def _collected(reply: Any, protocol: int, decode: Decode | None) -> Any:
    if isinstance(reply, Ordered):
        return [value_of(each, protocol, decode) for each in reply.items]
    if not isinstance(reply, dict):
        return [value_of(each, protocol, decode) for each in sorted(reply)]
    if protocol == 3:
        return {
            value_of(name, protocol, decode): value_of(value, protocol, decode)
            for name, value in reply.items()
        }
    return [value_of(each, protocol, decode) for pair in reply.items() for each in pair]


def _error(text: str) -> Exception:
    parse: Callable[[str], Exception] = BaseParser.parse_error
    error = parse(text)
    if isinstance(error, RedisConnectionError):
        raise error
    return error
