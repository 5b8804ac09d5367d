"""Replies of the Redis protocol, as Python values and as bytes of RESP2 or RESP3.

``bytes`` is a bulk string, ``int`` an integer, ``None`` null, ``list`` and ``tuple`` arrays,
``dict`` a map (in RESP2 a flat array), ``set`` a set, ``float`` a double (in RESP2 a bulk string),
``bool`` a boolean (in RESP2 1 or 0); the rest are the classes below.

Invariants: an error or simple string never holds a line break, whatever it was made of. Knows no
command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Reply: TypeAlias = Any
CRLF = b"\r\n"
BREAKS = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple string, as ``+OK``."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, with its code in front: ``ERR no such key``."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text that clients may print as it is."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Push:
    """Out of band; only ever sent in RESP3."""

    items: list[Reply]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Replies, as many as there were requests, that are bytes already, in RESP2 and RESP3 alike."""

    data: bytes


class NullArray:
    """The null that RESP2 tells from a null bulk string: ``*-1``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL_ARRAY"


class NoReply:
    """Nothing is sent."""

    __slots__ = ()


NULL_ARRAY = NullArray()
NO_REPLY = NoReply()
OK = Simple(b"OK")
QUEUED = Simple(b"QUEUED")
PONG = Simple(b"PONG")


def told(failure: Failure) -> bytes:
    """The text of an error, one line."""
    return failure.text.encode("utf-8", "surrogateescape").translate(BREAKS)


def encode(reply: Reply, protocol: int) -> bytes:
    """The bytes of a reply in RESP2 or RESP3."""
    parts: list[bytes] = []
    _Encoder(parts, protocol == 3).put(reply)
    return b"".join(parts)


class _Encoder:
    """Appends replies to a list of parts."""

    __slots__ = ("_add", "_new")

    def __init__(self, parts: list[bytes], new: bool) -> None:
        self._add = parts.append
        self._new = new

    def put(self, reply: Reply) -> None:
        """Append one reply."""
        kind = type(reply)
        if kind is bytes:
            self._add(b"$%d\r\n%b\r\n" % (len(reply), reply))
        elif kind is int:
            self._add(b":%d\r\n" % reply)
        elif kind is list or isinstance(reply, list | tuple):
            self._add(b"*%d\r\n" % len(reply))
            for each in reply:
                self.put(each)
        elif reply is None:
            self._add(b"_\r\n" if self._new else b"$-1\r\n")
        else:
            self._rare(reply)

    def _rare(self, reply: Reply) -> None:
        new, add = self._new, self._add
        match reply:
            case Simple():
                add(b"+%b\r\n" % reply.text.translate(BREAKS))
            case Failure():
                add(b"-%b\r\n" % told(reply))
            case NullArray():
                add(b"_\r\n" if new else b"*-1\r\n")
            case Verbatim():
                length = len(reply.text)
                add(
                    b"=%d\r\ntxt:%b\r\n" % (length + 4, reply.text)
                    if new
                    else b"$%d\r\n%b\r\n" % (length, reply.text)
                )
            case Push():
                add(b">%d\r\n" % len(reply.items))
                for each in reply.items:
                    self.put(each)
            case Encoded():
                add(reply.data)
            case NoReply():
                return
            case _:
                self._builtin(reply)

    def _builtin(self, reply: Reply) -> None:
        new, add = self._new, self._add
        match reply:
            case dict():
                add(b"%%%d\r\n" % len(reply) if new else b"*%d\r\n" % (2 * len(reply)))
                for name, value in reply.items():
                    self.put(name)
                    self.put(value)
            case bool():
                add((b"#t\r\n" if reply else b"#f\r\n") if new else b":%d\r\n" % reply)
            case float():
                text = b"%.17g" % reply
                add(b",%b\r\n" % text if new else b"$%d\r\n%b\r\n" % (len(text), text))
            case int():  # an IntEnum or the like
                add(b":%d\r\n" % reply)
            case set() | frozenset():
                add(b"~%d\r\n" % len(reply) if new else b"*%d\r\n" % len(reply))
                for each in sorted(reply):
                    self.put(each)
            case _:
                raise TypeError(f"no reply: {type(reply).__name__}")
