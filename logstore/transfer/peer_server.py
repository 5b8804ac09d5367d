"""A connection to a server of Redis or Valkey, through the package ``redis``, and what it replies.

The server may be hostile. `Bounds` limits how much it may reply, and how slowly; functions such as
`rows` check what a reply is. `Server.reading` turns an ``UnexpectedReply`` into the PeerError that
names the server and the command.

Invariants: replies are those of RESP2, as they come: nothing is turned into dictionaries, which
would lose repeated fields. Nothing is sent twice unless the caller does it. The memory of a reply
is counted while it comes: its bytes, and ``ITEM_BYTES`` for each item. A reply that is larger,
deeper or slower than allowed ends the connection. A reply of another shape, with IDs out of order
or beyond those asked for, or with a name that was not asked for, is refused. Every error is a
PeerError, PeerGone if the connection is at fault; none shows the password.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from logstore.errors import InvalidIDError, OptionError, PeerError, shown
from logstore.ids import StreamID, parse_id
from logstore.loading import installing
from logstore.transfer.job import Wanted

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
        """The error for a reply that the package cannot read."""
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
        """Around the reading of a reply to a command; PeerError if it is of another shape."""
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
        """How many replies a scan may take, by the number of keys."""
        keys_reply = self.attempt("DBSIZE")
        keys = SCAN_KEYS_MAX
        if not isinstance(keys_reply, PeerError):
            with self.reading("DBSIZE"):
                keys = min(count(keys_reply), SCAN_KEYS_MAX)
        return SCAN_REPLIES + keys // SCAN_KEYS_A_REPLY

    def info(self, name: bytes) -> StreamFacts | None:
        """What the server says of a stream; None if it has none of that name."""
        return self.facts(name, self.attempt("XINFO", "STREAM", name))

    def facts(self, name: bytes, reply: Any) -> StreamFacts | None:
        """What a reply of XINFO STREAM says; None if there is no such stream."""
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
    """The name of commands that are sent together, for errors."""
    return ("EXEC of " if at_once else "") + ", ".join(
        dict.fromkeys(str(each[0]) for each in commands)
    )


def checked(reply: Any) -> Any:
    """A reply of ``many`` or ``attempt``; a PeerError is raised."""
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
    """Entries between two IDs, both included, ``most`` at a time; None: from the first entry on."""
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


# -- what a reply must be -----------------------------------------------------------------------
Pairs: TypeAlias = list[tuple[bytes, bytes]]
EntryRows: TypeAlias = list[tuple[StreamID, Pairs]]
I64_MAX = (1 << 63) - 1


class UnexpectedReply(Exception):  # noqa: N818  (what came, not a kind of mistake)
    """A reply is not what the command gives; its text says why."""


def listed(reply: Any, length: int | None = None) -> list[Any]:
    """A list; ``length``: how many items it must have."""
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
    """Entries, as ``add_many`` takes them, in order: at most ``most``, with IDs greater than
    ``above`` and at most ``upto``. ``falling``: in the order of falling IDs."""
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
    """A reply of XREAD, by stream; each of them was asked for."""
    wanted = set(asked)
    found: dict[bytes, Any] = {}
    for each in listed([] if reply is None else reply):
        name = blob(listed(each, 2)[0])
        if name not in wanted or name in found:
            raise UnexpectedReply(f"the stream {shown(name)}, which was not asked for")
        found[name] = each[1]
    return found


# -- how much a server may reply, and how slowly -------------------------------------------------
REPLY_MAX_BYTES = 1 << 30  # of entries, payloads, lists of groups
SMALL_REPLY_MAX_BYTES = 64 << 20  # of all else
ITEM_BYTES = 64
LINE_MAX_BYTES = 1 << 20  # of an error, a number, the head of a string, and what came with it
DEPTH_MAX = 16
RATE_BYTES_S = 64 << 10  # at least, from ``reply_s`` after the command on
LARGE = frozenset({"DUMP", "EXEC", "XINFO", "XPENDING", "XRANGE", "XREAD", "XREVRANGE"})


class Bounds:
    """What the replies to the last commands may still take."""

    def __init__(self, reply_s: float) -> None:
        self._reply_s = reply_s
        self._since = 0.0
        self._most = self._left = SMALL_REPLY_MAX_BYTES
        self._line_left: int | None = None
        self._came = 0
        self._errors: Any = importlib.import_module("redis").exceptions

    def begin(self, command: str) -> None:
        """Count anew: a command is sent."""
        self._most = REPLY_MAX_BYTES if command in LARGE else SMALL_REPLY_MAX_BYTES
        self._left = self._most
        self._came = 0
        self._since = time.monotonic()

    def line(self, begins: bool) -> None:
        """Note that the reading of a line begins, or has ended."""
        self._line_left = LINE_MAX_BYTES if begins else None

    def item(self, size: int = 0) -> None:
        """Count an item, which announces ``size`` bytes."""
        if size > self._left:
            raise self.odd(f"a string of {size} bytes, {self._most} at most")
        self._left -= ITEM_BYTES
        if self._left < 0:
            raise self._too_large()

    def number(self, line: bytes) -> int:
        """The number behind ``:``, ``$`` or ``*``: behind the last two a size, or -1."""
        kind, digits = line[:1], line[1:]
        if kind in (b":", b"$", b"*") and len(digits) <= 20 and digits.lstrip(b"-").isdigit():
            found = int(digits) if digits.rfind(b"-") < 1 else -2
            if kind == b":" or found >= -1:
                return found
        raise self.odd(f"{line[:40]!r}, which begins no reply of RESP2")

    def came(self, size: int) -> None:
        """Count bytes that came."""
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
    """The class of a parser of RESP2 that keeps these bounds."""
    base: Any = importlib.import_module("redis._parsers")._RESP2Parser

    class Parser(base):  # type: ignore[misc]
        """Reads replies as its base does; InvalidResponse for bytes that are none."""

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
