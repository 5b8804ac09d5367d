"""Replies of the Redis protocol, as Python values and as bytes of RESP2 or RESP3.

``bytes`` is a bulk string, ``int`` an integer, ``None`` null, ``list`` and ``tuple`` arrays,
``dict`` a map (in RESP2 a flat array), ``set`` a set, ``float`` a double (in RESP2 a bulk string),
``bool`` a boolean (in RESP2 1 or 0); the rest are the classes below. The codec writes bytes,
numbers, null and arrays of these; the rest is written here.

Errors are what the peers say, word for word. ``Failed`` ends the parsing of a command;
``failure_of`` turns an error of the store into the peers' words for it: the store's own messages
begin with those and go on with advice, which clients that compare errors must not see. That a full
disk refuses changes stands in the server's log, too.

Invariants: an error or simple string never holds a line break, whatever it was made of. Knows no
command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from logstore.codec import codec
from logstore.engine.groups.admin import NO_KEY as NO_KEY_FOR_GROUP
from logstore.errors import (
    CommittedError,
    DiskFullError,
    Error,
    GroupExistsError,
    GroupNotFoundError,
    LockTimeoutError,
    ReadOnlyError,
    StreamNotFoundError,
    TooLargeError,
)
from logstore.wire.log_limiter import Seldom

# -- errors -----------------------------------------------------------------------------------
SYNTAX = "ERR syntax error"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NO_KEY = "ERR no such key"
TOO_LARGE = "ERR Elements are too large to be stored"
UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

# What a message of the store may begin with, if the peers have the same words for it.
_SAME_WORDS = (
    "Invalid stream ID specified as stream command argument",
    "The ID specified in XADD must be greater than 0-0",
    "The ID specified in XADD is equal or smaller than the target stream top item",
    "The stream has exhausted the last possible ID, unable to add more items",
    "Elements are too large to be stored",
    "invalid start ID for the interval",
    "invalid end ID for the interval",
    NO_KEY_FOR_GROUP,
    "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
    "The ID specified in XSETID is smaller than current max_deleted_entry_id",
    "The ID specified in XSETID is smaller than the target stream top item",
    "The entries_added specified in XSETID is smaller than the target stream length",
    "entries_added must be positive",
    "value for ENTRIESREAD must be positive or -1",
    "no such key",
    "DUMP payload version or checksum are wrong",
    "Bad data format",
)

# Other errors of the store, and what stands before their words, or in their place.
_CODES: tuple[tuple[type[Error], str], ...] = (
    (StreamNotFoundError, NO_KEY),
    (TooLargeError, TOO_LARGE),
    (DiskFullError, "MISCONF {}"),
    (CommittedError, "MISCONF {}"),
    (ReadOnlyError, "READONLY You can't write against a read only replica."),
    (LockTimeoutError, "BUSY {}"),
)
_full = Seldom()


class Failed(Exception):  # noqa: N818
    """A command that is refused; its text goes to the client as it is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def wrong_arity(name: str) -> Failed:
    """The wrong number of arguments for a command, or ``command|subcommand``."""
    return Failed(f"ERR wrong number of arguments for '{name}' command")


def failure_of(error: BaseException) -> Failure:
    """The reply that tells a client of an error."""
    if isinstance(error, Failed):
        return Failure(error.text)
    if not isinstance(error, Error):
        return Failure(f"ERR internal error: {type(error).__name__}")
    if isinstance(error, DiskFullError):
        _full.warn("a client's change was refused: %s", error)
    if error.peer_text is not None:
        return Failure(error.peer_text.decode("utf-8", "surrogateescape"))
    message = error.message
    if isinstance(error, GroupNotFoundError | GroupExistsError):
        return Failure(message)
    for words in _SAME_WORDS:
        if message.startswith(words):
            return Failure(f"ERR {words}")
    for kind, text in _CODES:
        if isinstance(error, kind):
            return Failure(text.format(message))
    return Failure(f"ERR {message}")


Reply: TypeAlias = Any
# -- replies ----------------------------------------------------------------------------------
CRLF = b"\r\n"
PARTS_MAX = 4096  # of a piece of a large reply
LARGE_BYTES = 64 * 1024  # a string that is a piece by itself, so that it is not copied
_PLAIN = codec().resp_value
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
class Ordered:
    """A set whose members are sent in this order."""

    items: list[Reply]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Replies by name, where one name may stand twice: a map in RESP3, pairs in RESP2."""

    items: list[tuple[bytes, Reply]]


@dataclass(frozen=True, slots=True)
class Push:
    """Out of band; only ever sent in RESP3."""

    items: list[Reply]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Replies, as many as there were requests, that are bytes already, in RESP2 and RESP3 alike."""

    data: bytes


@dataclass(frozen=True, slots=True)
class InPieces:
    """One reply that is bytes already, in pieces."""

    pieces: list[bytes]


@dataclass(frozen=True, slots=True)
class Array:
    """An array whose items are bytes already, in pieces, in the protocol of its client."""

    count: int
    pieces: list[bytes]

    def __len__(self) -> int:
        return self.count


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


def error_line(failure: Failure) -> bytes:
    """The text of an error, one line."""
    return failure.text.encode("utf-8", "surrogateescape").translate(BREAKS)


def encode(reply: Reply, protocol: int) -> bytes:
    """The bytes of a reply in RESP2 or RESP3."""
    kind = type(reply)
    if kind is InPieces:  # the most common ones without a detour
        return reply.pieces[0] if len(reply.pieces) == 1 else b"".join(reply.pieces)
    if (data := _PLAIN(reply, protocol == 3, LARGE_BYTES)) is not None:
        return data
    parts: list[bytes] = []
    _Encoder(parts, protocol == 3).put(reply)
    return b"".join(parts)


def encode_pieces(
    reply: Reply, protocol: int, count: Callable[[int], object], *, headed: bool = True
) -> list[bytes]:
    """The bytes of a large reply, in pieces; ``count`` gets the size of each as it is made.

    Not ``headed``: only the items of an array.
    """
    encoder = _Pieces(protocol == 3, count)
    if headed:
        encoder.put(reply)
    else:
        encoder.items(reply)
    encoder.end()
    return encoder.pieces


class _Encoder:
    """Appends replies to a list of parts."""

    __slots__ = ("_add", "_new")

    def __init__(self, parts: list[bytes], new: bool) -> None:
        self._add = parts.append
        self._new = new

    def items(self, reply: Iterable[Reply]) -> None:
        """Append what is in an array."""
        for item in reply:
            self.put(item)

    def put(self, reply: Reply) -> None:
        """Append one reply."""
        data = _PLAIN(reply, self._new, LARGE_BYTES)
        if data is not None:
            self._plain(data)
        elif (known := _BY_KIND.get(type(reply))) is not None:
            known(self, reply)
        else:
            self._other(reply)

    def _plain(self, data: bytes) -> None:
        self._add(data)

    def string(self, reply: bytes) -> None:
        """One that is large, without a copy of it."""
        self._add(b"$%d\r\n" % len(reply))
        self._add(reply)
        self._add(CRLF)

    def array(self, reply: Sequence[Reply]) -> None:
        self._add(b"*%d\r\n" % len(reply))
        self.items(reply)

    def null_array(self, _reply: NullArray) -> None:
        self._add(b"_\r\n" if self._new else b"*-1\r\n")

    def simple(self, reply: Simple) -> None:
        self._add(b"+%b\r\n" % reply.text.translate(BREAKS))

    def failure(self, reply: Failure) -> None:
        self._add(b"-%b\r\n" % error_line(reply))

    def verbatim(self, reply: Verbatim) -> None:
        length, new = len(reply.text), self._new
        form, size = (b"=%d\r\ntxt:%b\r\n", length + 4) if new else (b"$%d\r\n%b\r\n", length)
        self._add(form % (size, reply.text))

    def push(self, reply: Push) -> None:
        self._add(b">%d\r\n" % len(reply.items))
        self.items(reply.items)

    def encoded(self, reply: Encoded) -> None:
        self._add(reply.data)

    def made(self, reply: InPieces) -> None:
        self._already(reply.pieces)

    def made_array(self, reply: Array) -> None:
        self._add(b"*%d\r\n" % reply.count)
        self._already(reply.pieces)

    def no_reply(self, reply: NoReply) -> None:
        """Nothing."""

    def pairs(self, reply: Pairs) -> None:
        new = self._new
        self._add(b"%c%d\r\n" % (b"%" if new else b"*", len(reply.items)))
        for pair in reply.items:
            self.items(pair) if new else self.put(pair)

    def ordered(self, reply: Ordered) -> None:
        self._add(b"%c%d\r\n" % (b"~" if self._new else b"*", len(reply.items)))
        self.items(reply.items)

    def _already(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._add(piece)

    def _other(self, reply: Reply) -> None:
        """One of Python's kinds, or of a class below one."""
        new, add = self._new, self._add
        match reply:
            case list() | tuple():
                self.array(reply)
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
                self.ordered(Ordered(sorted(reply)))
            case _:
                raise TypeError(f"no reply: {type(reply).__name__}")


def _string(encoder: _Encoder, reply: bytes) -> None:
    encoder.string(reply)  # which is another one where a reply is made in pieces


# How replies of a kind are appended that are not plain.
_BY_KIND: dict[type, Callable[[_Encoder, Any], None]] = {
    bytes: _string,
    list: _Encoder.array,
    tuple: _Encoder.array,
    NullArray: _Encoder.null_array,
    Simple: _Encoder.simple,
    Failure: _Encoder.failure,
    Verbatim: _Encoder.verbatim,
    Push: _Encoder.push,
    Encoded: _Encoder.encoded,
    InPieces: _Encoder.made,
    Array: _Encoder.made_array,
    NoReply: _Encoder.no_reply,
    Pairs: _Encoder.pairs,
    Ordered: _Encoder.ordered,
}


class _Pieces(_Encoder):
    """Encodes a reply as pieces, each counted when it is made."""

    __slots__ = ("_count", "_parts", "_size", "pieces")

    def __init__(self, new: bool, count: Callable[[int], object]) -> None:
        self._parts: list[bytes] = []
        super().__init__(self._parts, new)
        self._count = count
        self._size = 0  # of plain ones among the parts
        self.pieces: list[bytes] = []

    def _plain(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= LARGE_BYTES:
            self.end()

    def string(self, reply: bytes) -> None:
        self._parts.append(b"$%d\r\n" % len(reply))
        self.end()
        self._count(len(reply))
        self.pieces.append(reply)
        self._parts.append(CRLF)

    def items(self, reply: Iterable[Reply]) -> None:
        """Append what is in an array."""
        parts = self._parts
        for item in reply:
            self.put(item)
            if len(parts) >= PARTS_MAX:
                self.end()

    def end(self) -> None:
        """Join what was appended to a piece."""
        if self._parts:
            piece = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._count(len(piece))
            self.pieces.append(piece)

    def _already(self, pieces: list[bytes]) -> None:  # they were counted
        self.end()
        self.pieces += pieces
