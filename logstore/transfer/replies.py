"""Replies of a server, held against what they must be before anything is done with them.

Invariants: nothing is taken of a reply of another shape, of IDs that are out of order or beyond
what was asked for, of a name that was not asked for; each is an ``UnexpectedReply``, which
``Server.reading`` turns into the PeerError that names the server and the command. Knows no server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from logstore.errors import InvalidIDError, shown
from logstore.ids import StreamID, parse_id

Pairs: TypeAlias = list[tuple[bytes, bytes]]
Rows: TypeAlias = list[tuple[StreamID, Pairs]]
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
    reply: Any, most: int, *, above: StreamID | None = None, upto: StreamID | None = None,
    falling: bool = False,
) -> Rows:  # fmt: skip
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
