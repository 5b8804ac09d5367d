"""A connection that sends words and gives replies as they are: raw, of RESP2 or RESP3."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

TIMEOUT_S = 120
Reply = Any


class Refusal(str):
    """An error, as it came."""

    __slots__ = ()


class Status(bytes):
    """A simple string, as it came."""

    __slots__ = ()


class Absent:
    """A null array of RESP2, told from a null bulk string."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent)

    def __hash__(self) -> int:
        return 0


def request(words: Sequence[bytes]) -> bytes:
    """A request as clients send it."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class Line(AbstractContextManager["Line"]):
    """One connection."""

    def __init__(self, port: int, *, connected: socket.socket | None = None) -> None:
        self._socket = connected or socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    @classmethod
    def on(cls, connected: socket.socket) -> Self:
        """On a socket that is connected already, by TLS or a Unix path."""
        return cls(0, connected=connected)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def end(self) -> None:
        """Send nothing any more, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def __call__(self, *words: bytes | str | int) -> Reply:
        """Send one command; its reply."""
        self.send(request([each if isinstance(each, bytes) else str(each).encode()
                           for each in words]))  # fmt: skip
        return self.reply()

    def reply(self) -> Reply:
        """The next reply; EOFError if the connection ended."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b"+":
                return Status(rest)
            case b"-":
                return Refusal(rest.decode("utf-8", "surrogateescape"))
            case b":" | b",":
                return int(rest) if kind == b":" else float(rest)
            case b"$" | b"=":
                return None if rest == b"-1" else self._bulk(int(rest))
            case b"*" | b"~" | b">":
                return Absent() if rest == b"-1" else [self.reply() for _ in range(int(rest))]
            case b"%":
                return ("map", [(self.reply(), self.reply()) for _ in range(int(rest))])
            case b"_":
                return Absent()
            case b"#":
                return rest == b"t"
            case _:
                raise AssertionError(line)

    def _bulk(self, size: int) -> bytes:
        data = self._file.read(size + 2)
        assert data is not None
        assert data.endswith(b"\r\n")
        return data[:-2]
