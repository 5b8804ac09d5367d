"""A connection to a server of Redis or Valkey, through the package ``redis``.

Invariants: replies are those of RESP2, as they come: nothing is turned into dictionaries, which
would lose repeated fields; nothing is sent twice behind the caller's back. Every error is a
PeerError, PeerGone if the connection is at fault; none of them tells the password.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from logstore.errors import OptionError, PeerError
from logstore.ids import StreamID
from logstore.loading import installing
from logstore.transfer.job import Wanted
from logstore.transfer.replies import (
    Bounds,
    EntryRows,
    UnexpectedReply,
    blob,
    by_name,
    count,
    digits,
    integer,
    listed,
    parser,
    rows,
    stream_id,
    value,
)

SCHEMES = ("redis://", "rediss://", "unix://")
FIXED = ("protocol", "decode_responses")
CONNECT_S = 10.0
REPLY_S = 60.0
SCAN_COUNT = 1000
# Of a scan: so many replies at least, and one for so many keys; so many bytes of names.
SCAN_REPLIES, SCAN_KEYS_A_REPLY, SCAN_KEYS_MAX = 1000, 100, 1_000_000_000
NAMES_MAX_BYTES = 1 << 30
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
            raise OptionError(f"redis is not installed: {installing('redis')}") from None
        self._errors = module.exceptions
        self._bounds = Bounds(reply_s)
        settings: dict[str, Any] = {
            "protocol": 2,
            "decode_responses": False,
            "retry": no_retry,
            "socket_timeout": reply_s,
            "socket_connect_timeout": CONNECT_S,
            "parser_class": parser(self._bounds),
        }
        if not url.startswith("unix://"):
            settings["socket_keepalive"] = True
        try:
            pool = module.ConnectionPool.from_url(url, **settings)
        except (ValueError, TypeError) as exc:
            raise OptionError(f"the address of the server cannot be: {exc}") from None
        if any(pool.connection_kwargs[name] != settings[name] for name in FIXED):
            raise OptionError(f"leave {' and '.join(FIXED)} out of the server's address")
        found = pool.connection_kwargs
        self.where: str = found.get("path") or f"{found.get('host')}:{found.get('port', 6379)}"
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

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- commands -------------------------------------------------------------------------------
    def call(self, *words: Any) -> Any:
        """The reply to one command; PeerError."""
        self._bounds.begin(words[0])
        try:
            return self._client.execute_command(*words)
        except self._errors.RedisError as exc:
            raise self._typed(exc, words[0]) from exc
        except (TypeError, ValueError, AttributeError, LookupError) as exc:
            raise self._odd(exc, words[0]) from exc

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
        self._bounds.begin("EXEC")
        pipe = self._client.pipeline(transaction=at_once)
        try:
            for each in commands:
                pipe.execute_command(*each)
            replies = pipe.execute(raise_on_error=False)
        except self._errors.RedisError as exc:
            raise self._typed(exc, _named(commands, at_once)) from exc
        except (TypeError, ValueError, AttributeError, LookupError) as exc:
            raise self._odd(exc, _named(commands, at_once)) from exc
        finally:
            pipe.reset()
        if len(replies) != len(commands):
            named = _named(commands, at_once)
            raise self.unexpected(named, f"{len(replies)} replies to {len(commands)} commands")
        return [
            self._typed(reply, commands[place][0]) if isinstance(reply, Exception) else reply
            for place, reply in enumerate(replies)
        ]

    def _typed(self, exc: Exception, command: Any) -> PeerError:
        errors = self._errors
        if isinstance(exc, errors.AuthenticationError | errors.AuthorizationError):
            return PeerError(f"the server {self.where} wants another name or password: {exc}")
        if isinstance(exc, errors.ConnectionError | errors.TimeoutError):
            return PeerGone(f"the server {self.where} cannot be reached, or went away: {exc}")
        if isinstance(exc, errors.InvalidResponse):
            return self.unexpected(command, str(exc))
        return PeerError(f"the server {self.where} refuses {command}: {exc}")

    def _odd(self, exc: Exception, command: Any) -> PeerError:
        """What a reply of another shape makes the package stumble over."""
        self._client.connection_pool.disconnect()
        return self.unexpected(command, f"which the package redis cannot read ({exc})")

    def unexpected(self, command: Any, why: str, stream: bytes | None = None) -> PeerError:
        """The error for a reply that is not what the command gives."""
        return PeerError(
            f"the server {self.where} answers {command} with {why}: it is no Redis or Valkey, or "
            "not to be trusted",
            stream=stream,
        )

    @contextmanager
    def reading(self, command: str, stream: bytes | None = None) -> Iterator[None]:
        """In the block a reply to this command is read; PeerError if it is of another shape."""
        try:
            yield
        except UnexpectedReply as exc:
            raise self.unexpected(command, str(exc), stream) from None

    # -- what is there --------------------------------------------------------------------------
    def streams(self, wanted: Wanted) -> list[bytes]:
        """The names of its streams that are wanted, sorted."""
        found: set[bytes] = set()
        size = replies = 0
        cursor = 0
        most = self._scan_replies()
        seen: set[int] = set()
        while True:
            reply = self.call("SCAN", cursor, "COUNT", SCAN_COUNT, "TYPE", "stream")
            with self.reading("SCAN"):
                next_cursor, names = listed(reply, 2)
                cursor = digits(next_cursor)
                fresh = {blob(name) for name in listed(names)} - found
                fresh = {name for name in fresh if wanted.wants(name)}
                size += sum(map(len, fresh))
                replies += 1
                if cursor in seen:
                    raise UnexpectedReply(f"the cursor {cursor} twice, so it would never end")
                if replies > most:
                    raise UnexpectedReply(f"more than {most} replies, for all keys that it has")
                if size > NAMES_MAX_BYTES:
                    raise UnexpectedReply(f"names of more than {NAMES_MAX_BYTES} bytes")
            found |= fresh
            seen.add(cursor)
            if not cursor:
                return sorted(found)

    def _scan_replies(self) -> int:
        """How many replies a scan may take, by the keys that there are."""
        keys_reply = self.attempt("DBSIZE")
        keys = SCAN_KEYS_MAX
        if not isinstance(keys_reply, PeerError):
            with self.reading("DBSIZE"):
                keys = min(count(keys_reply), SCAN_KEYS_MAX)
        return SCAN_REPLIES + keys // SCAN_KEYS_A_REPLY

    def info(self, name: bytes) -> StreamFacts | None:
        """What it tells of a stream; None if it has none of that name."""
        return self.facts(name, self.attempt("XINFO", "STREAM", name))

    def facts(self, name: bytes, reply: Any) -> StreamFacts | None:
        """The same of a reply that came already."""
        if is_no_stream(reply):
            return None
        with self.reading("XINFO STREAM", name):
            return StreamFacts(checked(reply))

    def groups(self, name: bytes, reply: Any) -> list[GroupFacts] | None:
        """A reply of XINFO GROUPS; None if there is no such stream."""
        if is_no_stream(reply):
            return None
        with self.reading("XINFO GROUPS", name):
            found = [GroupFacts(each) for each in listed(checked(reply))]
            if len({each.name for each in found}) != len(found):
                raise UnexpectedReply("two groups of a name")
            return found


class StreamFacts:
    """A reply of XINFO STREAM; UnexpectedReply."""

    def __init__(self, reply: Any) -> None:
        found = by_name(reply)
        self.length = count(value(found, b"length"))
        self.last = stream_id(value(found, b"last-generated-id"))
        added = found.get(b"entries-added")  # Redis 7.0 on
        self.entries_added: int | None = None if added is None else integer(added)
        deleted = found.get(b"max-deleted-entry-id")
        self.max_deleted = StreamID(0, 0) if deleted is None else stream_id(deleted)
        self.first_entry = _edge(found, b"first-entry")  # the first entry's ID
        self.last_entry = _edge(found, b"last-entry")


def _edge(found: dict[bytes, Any], name: bytes) -> StreamID | None:
    entry = found.get(name)
    return None if entry is None else stream_id(listed(entry, 2)[0])


class GroupFacts:
    """One group of a reply of XINFO GROUPS; UnexpectedReply."""

    def __init__(self, reply: Any) -> None:
        found = by_name(reply)
        self.name = blob(value(found, b"name"))
        self.last = stream_id(value(found, b"last-delivered-id"))
        self.pending = count(value(found, b"pending"))
        self.tells_read = b"entries-read" in found  # Redis 7.0 on
        read = found.get(b"entries-read")
        self.entries_read: int | None = None if read is None else integer(read)


def _named(commands: Sequence[Command], at_once: bool) -> str:
    """What commands that go together are called."""
    return ("EXEC of " if at_once else "") + ", ".join(
        dict.fromkeys(str(each[0]) for each in commands)
    )


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


def pages(
    server: Server, name: bytes, start: StreamID | None, end: StreamID, most: int
) -> Iterator[EntryRows]:
    """Entries from the one ID, or the first one, up to the other, ``most`` at a time."""
    low = "-" if start is None else str(start)
    above = None if start is None or not start.ms | start.seq else start.previous()
    while True:
        reply = server.call("XRANGE", name, low, str(end), "COUNT", most)
        with server.reading("XRANGE", name):
            page = rows(reply, most, above=above, upto=end)
        if page:
            yield page
        if len(page) < most:
            return
        above = page[-1][0]
        low = f"({above}"
