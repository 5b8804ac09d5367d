"""Connections of redis-py that lead to a store in this process, and the pool that lends them.

Requests go to the session as words and replies come back as values: nothing is packed to bytes and
parsed again. Invariants: ``value_of(reply, protocol, ...)`` is what redis-py makes of
``encode(reply, protocol)``; what is sent as bytes all the same is answered in the same order;
errors and time-outs are those of a connection over a network; a connection that is borrowed is
idle, connected and owes no reply. All else is redis-py's own pool's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis._parsers.base import BaseParser
from redis.connection import Connection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from logstore.wire.embedded import EmbeddedSocket, Shared
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
    error_line,
)

Decode = Callable[[bytes], Any]


# -- replies as values ------------------------------------------------------------------------
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
            return _error(error_line(reply).decode("utf-8", "replace"))
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


# mypy: disallow-untyped-calls=False


# -- connections ------------------------------------------------------------------------------
_ENDED = "Connection closed by server."
_AS_SOCKET: Any = object()


class Requests(list[list[bytes]]):
    """Commands as words: what stands here for packed ones."""


class EmbeddedConnection(Connection):
    """A connection of redis-py that leads to a store in this process."""

    def __init__(self, *args: Any, service_key: str, **options: Any) -> None:
        self._service_key = service_key
        super().__init__(*args, **options)

    def _connect(self) -> Any:
        made = EmbeddedSocket(Shared.service(self._service_key), values=True)
        made.settimeout(self.socket_timeout)
        return made

    @property
    def _link(self) -> EmbeddedSocket | None:
        found: Any = self._sock
        return found if isinstance(found, EmbeddedSocket) else None

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What is shown of it."""
        return [("path", self._service_key)]

    @property
    def at_rest(self) -> bool:
        """Whether it is connected and owes no reply."""
        sock = self._link
        return sock is not None and sock.at_rest and not getattr(self, "_should_reconnect", False)

    # -- requests -----------------------------------------------------------------------------
    def _words(self, args: Sequence[Any]) -> list[bytes]:
        """A command as words; its name may hold several, as in ``XGROUP CREATE``."""
        encoder = self.encoder
        name, *rest = args
        words: list[bytes] = (name.encode() if isinstance(name, str) else name).split()
        for each in rest:
            if type(each) is str:
                words.append(each.encode(encoder.encoding, encoder.encoding_errors))
            elif type(each) is bytes:
                words.append(each)
            else:
                words.append(bytes(encoder.encode(each)))
        return words

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> Any:
        """What ``send_packed_command`` takes, of several commands."""
        return Requests(map(self._words, commands))

    def send_command(self, *args: Any, **options: Any) -> None:
        """Run a command; its reply is there to be read."""
        self.send_packed_command(Requests([self._words(args)]), options.get("check_health", True))

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Run what ``pack_commands`` or ``pack_command`` gave."""
        if not isinstance(command, Requests):
            super().send_packed_command(command, check_health)
            return
        if self._sock is None:
            self.connect()
        if check_health and self.health_check_interval:
            self.check_health()
        sock = self._link
        try:
            if sock is None:
                raise BrokenPipeError(_ENDED)
            sock.send_words(command)
        except OSError as exc:
            self.disconnect()
            raise RedisConnectionError(f"Error while writing to {self!r}: {exc}.") from exc
        except BaseException:
            self.disconnect()
            raise

    # -- replies ------------------------------------------------------------------------------
    def can_read(self, timeout: float = 0) -> bool:
        """Whether a reply is there, or comes in so many seconds; ConnectionError at the end."""
        if self._sock is None:
            self.connect()
        sock = self._link
        found = None if sock is None else sock.readable(timeout)
        if found is None:
            self.disconnect()
            raise RedisConnectionError(_ENDED)
        return found

    def read_response(
        self,
        disable_decoding: bool = False,
        *,
        timeout: Any = _AS_SOCKET,
        disconnect_on_error: bool = True,
        push_request: bool = False,  # noqa: ARG002
    ) -> Any:
        """The reply that is next; an error is raised."""
        sock, encoder = self._link, self.encoder
        try:
            if sock is None:
                raise RedisConnectionError(_ENDED)
            given = isinstance(timeout, int | float) or timeout is None
            found = sock.receive(timeout if given else sock.gettimeout())
            if found is None:
                raise RedisConnectionError(_ENDED)
            decode = None if disable_decoding or not encoder.decode_responses else encoder.decode
            response = value_of(*found, decode)
        except (TimeoutError, BlockingIOError) as exc:
            if disconnect_on_error:
                self.disconnect()
            raise RedisTimeoutError(f"Timeout reading from {self!r}") from exc
        except BaseException:
            if disconnect_on_error:
                self.disconnect()
            raise
        if self.health_check_interval:
            self.next_health_check: Any = time.monotonic() + self.health_check_interval
        if isinstance(response, ResponseError):
            raise response
        return response


class EmbeddedPool(ConnectionPool):
    """redis-py's pool, with ``borrow`` beside ``get_connection``."""

    def borrow(self) -> EmbeddedConnection | None:
        """An idle connection that can run a command; None: ``get_connection`` finds one."""
        if self.pid != os.getpid():
            return None
        with self._lock:
            idle = self._available_connections
            if not idle or not idle[-1].at_rest:
                return None
            found: EmbeddedConnection = idle.pop()
            self._in_use_connections.add(found)
        return found

    def give_back(self, connection: EmbeddedConnection) -> None:
        """What ``release`` does for one that was borrowed."""
        if self.pid != os.getpid():
            self.release(connection)
            return
        with self._lock:
            if connection in self._in_use_connections:
                self._in_use_connections.remove(connection)
                self._available_connections.append(connection)  # whoever borrows it looks at it
