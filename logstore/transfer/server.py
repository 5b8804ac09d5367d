"""A connection to a server of Redis or Valkey, through the package ``redis``.

Invariants: replies are those of RESP2, as they come: nothing is turned into dictionaries, which
would lose repeated fields; nothing is sent twice behind the caller's back. Every error is a
PeerError, PeerGone if the connection is at fault; none of them tells the password.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from logstore.errors import OptionError, PeerError
from logstore.ids import StreamID, parse_id
from logstore.transfer.wanted import Wanted

SCHEMES = ("redis://", "rediss://", "unix://")
FIXED = ("protocol", "decode_responses")
CONNECT_S = 10.0
REPLY_S = 60.0
SCAN_COUNT = 1000
Command: TypeAlias = tuple[Any, ...]


class PeerGone(PeerError):  # noqa: N818  (what happened, not a kind of mistake)
    """The server cannot be reached, or the connection broke: trying again may help."""


class Server:
    """One server, of which a connection is made when it is needed."""

    def __init__(self, url: str, *, password: str | None = None, reply_s: float = REPLY_S) -> None:
        if not url.startswith(SCHEMES):
            raise OptionError(f"a server is given as one of {', '.join(SCHEMES)}...")
        try:
            module: Any = importlib.import_module("redis")
            no_retry = module.retry.Retry(module.backoff.NoBackoff(), 0)
        except ModuleNotFoundError:
            raise OptionError(
                "the package redis is not installed: pip install 'logstore-streams[redis]'"
            ) from None
        self._errors = module.exceptions
        settings: dict[str, Any] = {
            "protocol": 2, "decode_responses": False, "retry": no_retry, "socket_timeout": reply_s,
            "socket_connect_timeout": CONNECT_S,
        }  # fmt: skip
        if not url.startswith("unix://"):
            settings["socket_keepalive"] = True
        try:
            pool = module.ConnectionPool.from_url(url, **settings)
        except (ValueError, TypeError) as exc:
            raise OptionError(f"the address of the server cannot be: {exc}") from None
        if any(pool.connection_kwargs[name] != settings[name] for name in FIXED):
            raise OptionError(f"leave {' and '.join(FIXED)} out of the server's address")
        if password is not None:
            pool.connection_kwargs["password"] = password
        self._client = module.Redis(connection_pool=pool)
        self._client.response_callbacks.clear()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    # -- commands -------------------------------------------------------------------------------
    def call(self, *words: Any) -> Any:
        """The reply to one command; PeerError."""
        try:
            return self._client.execute_command(*words)
        except self._errors.RedisError as exc:
            raise self._typed(exc, words[0]) from exc

    def attempt(self, *words: Any) -> Any:
        """The reply, or the error if the server refuses the command."""
        try:
            return self.call(*words)
        except PeerGone:
            raise
        except PeerError as exc:
            return exc

    def many(self, commands: Sequence[Command], *, at_once: bool = False) -> list[Any]:
        """The replies to commands that are sent together; with ``at_once`` in MULTI and EXEC.

        Single errors stand in the list as PeerError; PeerError if the whole was refused.
        """
        pipe = self._client.pipeline(transaction=at_once)
        try:
            for each in commands:
                pipe.execute_command(*each)
            replies = pipe.execute(raise_on_error=False)
        except self._errors.RedisError as exc:
            raise self._typed(exc, "EXEC") from exc
        finally:
            pipe.reset()
        return [
            self._typed(reply, commands[place][0]) if isinstance(reply, Exception) else reply
            for place, reply in enumerate(replies)
        ]

    def _typed(self, exc: Exception, command: Any) -> PeerError:
        errors = self._errors
        if isinstance(exc, errors.AuthenticationError | errors.AuthorizationError):
            return PeerError(f"the server wants another name or password: {exc}")
        if isinstance(exc, errors.ConnectionError | errors.TimeoutError):
            return PeerGone(f"the server cannot be reached, or went away: {exc}")
        return PeerError(f"the server refuses {command}: {exc}")

    # -- what is there --------------------------------------------------------------------------
    def streams(self, wanted: Wanted) -> list[bytes]:
        """The names of its streams that are wanted, sorted."""
        found: set[bytes] = set()
        cursor: Any = 0
        while True:
            cursor, names = self.call("SCAN", cursor, "COUNT", SCAN_COUNT, "TYPE", "stream")
            found.update(name for name in names if wanted.wants(name))
            if not int(cursor):
                return sorted(found)

    def info(self, name: bytes) -> StreamFacts | None:
        """What it tells of a stream; None if it has none of that name."""
        reply = self.attempt("XINFO", "STREAM", name)
        return None if is_no_stream(reply) else StreamFacts(checked(reply))


class StreamFacts:
    """A reply of XINFO STREAM."""

    def __init__(self, reply: list[Any]) -> None:
        self._found = by_name(reply)
        self.length: int = self._found[b"length"]
        self.last = stream_id(self._found[b"last-generated-id"])
        self.entries_added: int | None = self._found.get(b"entries-added")  # Redis 7.0 on
        deleted = self._found.get(b"max-deleted-entry-id")
        self.max_deleted = StreamID(0, 0) if deleted is None else stream_id(deleted)

    @property
    def first_entry(self) -> StreamID | None:
        """The first entry's ID."""
        return self._edge(b"first-entry")

    @property
    def last_entry(self) -> StreamID | None:
        """The last entry's ID."""
        return self._edge(b"last-entry")

    def _edge(self, name: bytes) -> StreamID | None:
        entry = self._found.get(name)
        return None if not entry else stream_id(entry[0])


def by_name(reply: list[Any]) -> dict[bytes, Any]:
    """A reply of names and values."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def stream_id(text: bytes) -> StreamID:
    """An ID of a reply."""
    return parse_id(text.decode())


def checked(reply: Any) -> Any:
    """A reply of ``many`` or ``attempt`` that must not be an error."""
    if isinstance(reply, PeerError):
        raise reply
    return reply


def is_no_stream(reply: Any) -> bool:
    """Whether a server says that there is no such key, or that it is no stream."""
    return isinstance(reply, PeerError) and any(
        words in str(reply) for words in ("no such key", "WRONGTYPE")
    )


def pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The fields and values of an entry."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def rows(reply: list[Any]) -> list[tuple[StreamID, list[tuple[bytes, bytes]]]]:
    """Entries of a reply, as ``add_many`` takes them; what was deleted meanwhile is left out."""
    return [(stream_id(id), pairs(flat)) for id, flat in reply if flat is not None]


def pages(server: Server, name: bytes, start: str, end: str, count: int) -> Iterator[list[Any]]:
    """Entries of an interval, ``count`` at a time, as XRANGE gives them."""
    while True:
        page = server.call("XRANGE", name, start, end, "COUNT", count)
        if page:
            yield page
        if len(page) < count:
            return
        start = f"({page[-1][0].decode()}"
