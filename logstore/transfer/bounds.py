"""How much a server may answer, and how slowly: a parser of replies that stops before memory does.

Invariants: what is counted is what a reply takes in memory: its bytes, and ``ITEM_BYTES`` for each
of its items; a reply that is larger, deeper or slower than it may be ends the connection. Reads
with the parser of the package ``redis``, which knows no limits.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

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
