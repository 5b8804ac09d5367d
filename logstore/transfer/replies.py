"""Replies of a server that may be hostile: how much it may answer, and what an answer must be.

Invariants: what a reply takes in memory is counted while it comes, its bytes and ``ITEM_BYTES`` for
each of its items; one that is larger, deeper or slower than it may be ends the connection. Nothing
is taken of a reply of another shape, of IDs that are out of order or beyond what was asked for, of
a name that was not asked for; each is an ``UnexpectedReply``, which ``Server.reading`` turns into
the PeerError that names the server and the command. Knows no server; reads with the parser of the
package ``redis``, which knows no limits.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from typing import Any, TypeAlias

from logstore.errors import InvalidIDError, shown
from logstore.ids import StreamID, parse_id

# -- What a reply says ----------------------------------------------------------------------------
Pairs: TypeAlias = list[tuple[bytes, bytes]]
EntryRows: TypeAlias = list[tuple[StreamID, Pairs]]
I64_MAX = (1 << 63) - 1


class UnexpectedReply(Exception):  # noqa: N818  (what came, not a kind of mistake)
    """A reply is not what the command gives; its text says why."""


def listed(reply: Any, length: int | None = None) -> list[Any]:
    """A list, of so many items if that is given."""
    if not isinstance(reply, list):
        raise UnexpectedReply(f"{shown(reply)} where a list is due")
    if length is not None and len(reply) != length:
        raise UnexpectedReply(f"a list of {len(reply)} where {length} items are due")
    return reply


def blob(reply: Any) -> bytes:
    """A string."""
    if not isinstance(reply, bytes):
        raise UnexpectedReply(f"{shown(reply)} where a string is due")
    return reply


def integer(reply: Any) -> int:
    """A number of 64 bits, with a sign."""
    if type(reply) is not int or not -I64_MAX - 1 <= reply <= I64_MAX:
        raise UnexpectedReply(f"{shown(reply)} where a number is due")
    return reply


def count(reply: Any) -> int:
    """A number from 0 on."""
    if integer(reply) < 0:
        raise UnexpectedReply(f"{reply} where a number from 0 on is due")
    return int(reply)


def digits(reply: Any) -> int:
    """A number from 0 on, below 2^64, which comes as a string."""
    text = blob(reply)
    if not (text.isdigit() and len(text) <= 20 and int(text) < 1 << 64):
        raise UnexpectedReply(f"{shown(reply)} where digits are due")
    return int(text)


def by_name(reply: Any) -> dict[bytes, Any]:
    """A list of names and values."""
    flat = listed(reply)
    if len(flat) % 2:
        raise UnexpectedReply("a name without a value")
    found = dict(zip(map(blob, flat[::2]), flat[1::2], strict=True))
    if 2 * len(found) != len(flat):
        raise UnexpectedReply("a name stands twice")
    return found


def value(found: dict[bytes, Any], name: bytes) -> Any:
    """The value of a name that must be there."""
    if name not in found:
        raise UnexpectedReply(f"nothing is said of {name.decode()}")
    return found[name]


def stream_id(reply: Any) -> StreamID:
    """An ID."""
    text = blob(reply)
    try:
        found = parse_id(text.decode())
    except (InvalidIDError, UnicodeDecodeError):
        raise UnexpectedReply(f"{shown(reply)} where an ID is due") from None
    if bytes(found) != text:
        raise UnexpectedReply(f"{shown(reply)} where an ID is due")
    return found


def pairs(reply: Any) -> Pairs:
    """The fields and values of an entry."""
    flat = listed(reply)
    if not flat or len(flat) % 2:
        raise UnexpectedReply(f"an entry of {len(flat)} fields and values")
    return list(zip(map(blob, flat[::2]), map(blob, flat[1::2]), strict=True))


def rows(
    reply: Any,
    most: int,
    *,
    above: StreamID | None = None,
    upto: StreamID | None = None,
    falling: bool = False,
) -> EntryRows:
    """Entries, as ``add_many`` takes them: at most so many, above the one ID, not above the other,
    in order; ``falling``: from the last one on."""
    found = [
        (stream_id(id), pairs(flat)) for id, flat in (listed(each, 2) for each in listed(reply))
    ]
    if len(found) > most:
        raise UnexpectedReply(f"{len(found)} entries where {most} at most were asked for")
    in_order = found[::-1] if falling else found
    for id, _ in in_order:
        if above is not None and id <= above:
            raise UnexpectedReply(f"entry {id} is not above {above}")
        above = id
    if in_order and upto is not None and in_order[-1][0] > upto:
        raise UnexpectedReply(f"entry {in_order[-1][0]} is above {upto}")
    return found


def by_stream(reply: Any, asked: Iterable[bytes]) -> dict[bytes, Any]:
    """A reply of XREAD, by the names of streams, none of which was not asked for."""
    wanted = set(asked)
    found: dict[bytes, Any] = {}
    for each in listed([] if reply is None else reply):
        name = blob(listed(each, 2)[0])
        if name not in wanted or name in found:
            raise UnexpectedReply(f"the stream {shown(name)}, which was not asked for")
        found[name] = each[1]
    return found


# -- How much may come, and how slowly ------------------------------------------------------------
REPLY_MAX_BYTES = 1 << 30  # of entries, payloads, lists of groups
SMALL_REPLY_MAX_BYTES = 64 << 20  # of all else
ITEM_BYTES = 64
LINE_MAX_BYTES = 1 << 20  # of an error, a number, the head of a string; and what came with it
DEPTH_MAX = 16
RATE_BYTES_S = 64 << 10  # once a reply has begun, and ``reply_s`` are over
LARGE = frozenset({"DUMP", "EXEC", "XINFO", "XPENDING", "XRANGE", "XREAD", "XREVRANGE"})


class Bounds:
    """What is left of the reply, or replies, to what was sent last."""

    def __init__(self, reply_s: float) -> None:
        self._reply_s = reply_s
        self._since = 0.0
        self._most = self._left = SMALL_REPLY_MAX_BYTES
        self._line_left: int | None = None
        self._came = 0
        self._errors: Any = importlib.import_module("redis").exceptions

    def begin(self, command: str) -> None:
        """A command is sent: count its reply anew."""
        self._most = REPLY_MAX_BYTES if command in LARGE else SMALL_REPLY_MAX_BYTES
        self._left = self._most
        self._came = 0
        self._since = time.monotonic()

    def line(self, begins: bool) -> None:
        """A line is read from here on, or was read."""
        self._line_left = LINE_MAX_BYTES if begins else None

    def item(self, size: int = 0) -> None:
        """Another item, which says that it has so many bytes."""
        if size > self._left:
            raise self.odd(f"a string of {size} bytes, {self._most} at most")
        self._left -= ITEM_BYTES
        if self._left < 0:
            raise self._too_large()

    def number(self, line: bytes) -> int:
        """What stands behind ``:``, ``$`` or ``*``: for the last two a size, or -1."""
        kind, digits = line[:1], line[1:]
        if kind in (b":", b"$", b"*") and len(digits) <= 20 and digits.lstrip(b"-").isdigit():
            found = int(digits) if digits.rfind(b"-") < 1 else -2
            if kind == b":" or found >= -1:
                return found
        raise self.odd(f"{line[:40]!r}, which begins no reply of RESP2")

    def came(self, size: int) -> None:
        """So many bytes came."""
        self._left -= size
        self._came += size
        if self._line_left is not None:
            self._line_left -= size
            if self._line_left < 0:
                raise self.odd(f"a line of more than {LINE_MAX_BYTES} bytes")
        if self._left < 0:
            raise self._too_large()
        if time.monotonic() - self._since > self._reply_s + self._came / RATE_BYTES_S:
            raise self._errors.TimeoutError("its reply comes too slowly")

    def odd(self, why: str) -> Exception:
        """An error that ends the connection."""
        made: Exception = self._errors.InvalidResponse(why)
        return made

    def _too_large(self) -> Exception:
        return self.odd(f"a reply that takes more than {self._most} bytes")


class _Counted:
    """A socket that counts what it receives."""

    def __init__(self, socket: Any, bounds: Bounds) -> None:
        self._socket = socket
        self._bounds = bounds

    def recv(self, size: int) -> bytes:
        """Bytes that came."""
        data: bytes = self._socket.recv(size)
        self._bounds.came(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def parser(bounds: Bounds) -> Any:
    """The class of a parser of RESP2 that keeps to these bounds."""
    base: Any = importlib.import_module("redis._parsers")._RESP2Parser

    class Parser(base):  # type: ignore[misc]
        """Reads replies as its base does; what is no reply is InvalidResponse."""

        def on_connect(self, connection: Any) -> None:
            super().on_connect(connection)
            self._buffer._sock = _Counted(self._buffer._sock, bounds)

        def _read_response(self, disable_decoding: bool = False, **how: Any) -> Any:
            del disable_decoding  # nothing is decoded
            return self._item(0, how)

        def _item(self, depth: int, how: dict[str, Any]) -> Any:
            bounds.line(begins=True)
            line: bytes = self._buffer.readline(**how)
            bounds.line(begins=False)
            kind, rest = line[:1], line[1:]
            if kind == b"+":
                bounds.item()
                return rest
            if kind == b"-":
                bounds.item()
                error = self.parse_error(rest.decode("utf-8", "replace"))
                if isinstance(error, bounds._errors.ConnectionError):
                    raise error
                return error
            number = bounds.number(line)
            if kind == b":" or number == -1:
                bounds.item()
                return number if kind == b":" else None
            if kind == b"$":
                bounds.item(number)
                return self._buffer.read(number, **how)
            if depth == DEPTH_MAX:
                raise bounds.odd(f"lists in lists, {DEPTH_MAX} deep")
            bounds.item(number)  # each of them takes a byte at least
            return [self._item(depth + 1, how) for _ in range(number)]

    return Parser
