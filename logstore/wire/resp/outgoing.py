"""Output of a client: replies, from where they are made to where they are sent.

A server encodes them in the thread that makes them, in pieces, and counts these as they are made:
a run of requests ends once it owes ``RUN_BYTES``, and a connection is cut before it owes more than
a client may. To a client in the same process they are values, and it is owed as much as it asks.

Invariants: what is counted is in memory at most once more than as it is counted: values become
bytes batch by batch, and are freed as they do. Values that must all be there before the first
becomes bytes (they are sorted, or belong to one commit) are weighed, and held against the same
limit. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.codec import NodeEntry, codec
from logstore.ids import MAX_ID
from logstore.wire.resp.reply import Array, Failure, InPieces, Pairs, Reply, Verbatim, encode_pieces

if TYPE_CHECKING:
    from logstore.engine.streams.read import Maker

T = TypeVar("T")
RUN_BYTES = 1 << 20
ROWS_AT_ONCE = 1000  # values that become bytes together


class ConnectionCut(Exception):  # noqa: N818
    """The connection ends here: nobody reads the reply, or it is more than a client may owe."""


def entry(row: NodeEntry) -> Reply:
    """An entry: its ID, and a flat list of fields and values."""
    return [b"%d-%d" % (row[1], row[2]), row[3]]


class _Encoding:
    """Makes replies of the entries of a node, as bytes."""

    def __init__(self) -> None:
        self.entries = codec().resp_entries


_ENCODING = _Encoding()
_ENCODED_DELIVERIES = codec().resp_deliveries


class ReplyRows:
    """Rows of an array whose number is not known before; here as values."""

    maker: Maker | None = None  # makes what ``take`` takes of a node; None: the codec's ``entries``

    def __init__(self) -> None:
        self._rows: list[Reply] = []

    def first(self, lp: bytes, *node: Any) -> tuple[list[Any], bytes]:
        """What ``take`` takes of a node, as the codec's ``resp_deliveries`` tells what of it."""
        master_ms, master_seq, vector, start, limit = node
        found = codec().entries(lp, master_ms, master_seq, vector, start, MAX_ID, limit)
        return found, codec().pack_ids([row[1:3] for row in found])[0]

    def take(self, found: list[Any]) -> None:
        """Entries that come next, as ``maker`` or ``first`` made them."""
        self.add([entry(row) for row in found])

    def add(self, rows: list[Reply]) -> None:
        """Rows that come next."""
        self._rows += rows

    def weigh(self, size: int) -> None:
        """Count bytes of values that wait to become rows; ``ConnectionCut`` if it is too much."""

    def done(self) -> Reply:
        """All of them, as a reply that has a length."""
        return self._rows

    def all_of(self, values: list[T], as_row: Callable[[T], Reply]) -> Reply:
        """The array of values, each as ``as_row``; the list is emptied on the way."""
        values.reverse()
        while values:
            some = values[: -ROWS_AT_ONCE - 1 : -1]
            del values[-ROWS_AT_ONCE:]
            self.add([as_row(value) for value in some])
        return self.done()


class Output:
    """The replies to a client in the same process: not counted, without a limit."""

    def __init__(self) -> None:
        self.protocol = 2  # in which replies become bytes
        self.failed: list[Failure] = []  # errors inside of replies, to be counted
        self.size = 0  # bytes so far, if they are counted; set back when a reply is made once more

    @property
    def full(self) -> bool:
        """Whether a run of requests ends here, until the client has read."""
        return False

    def check(self) -> None:
        """``ConnectionCut`` once nobody waits for the reply any more."""

    def over(self) -> ConnectionCut:
        """The error that says that it is more than a client may owe."""
        return ConnectionCut("the reply is larger than a client may owe")

    def made(self, reply: Reply) -> Reply:
        """A reply as it is kept until it is sent."""
        return reply

    def rows(self) -> ReplyRows:
        """An array that is about to be made."""
        return ReplyRows()

    def note(self, replies: Iterable[Reply]) -> None:
        """Keep the errors among what becomes one reply."""
        self.failed += [reply for reply in replies if type(reply) is Failure]

    def each_in(self, replies: list[Reply], _protocols: Sequence[int]) -> list[Reply]:
        """Replies of which each is sent in its own protocol; values stay what they are."""
        return replies

    def room(self, part: int = 1) -> int:
        """How many bytes of memory values may take that become replies together: one of so many
        parts of what may still be owed. 0: any."""
        del part
        return 0


class OutputBytes(Output):
    """The replies to a client of a server, in bytes; ``ConnectionCut`` beyond ``most`` of them."""

    def __init__(self, protocol: int, most: int, alive: Callable[[], bool]) -> None:
        super().__init__()
        self.protocol = protocol
        self._most = most
        self._alive = alive

    def begin(self, protocol: int) -> None:
        """Count anew: what was owed before is sent."""
        self.protocol, self.size = protocol, 0
        if self.failed:
            self.failed = []

    @property
    def full(self) -> bool:
        """Whether a run of requests ends here, until the client has read."""
        return self.size >= RUN_BYTES

    def check(self) -> None:
        """``ConnectionCut`` once nobody waits for the reply any more."""
        if not self._alive():
            raise ConnectionCut("the client went, or the server ends")

    def count(self, size: int) -> None:
        """So many bytes more are owed."""
        self.size += size
        if self.size > self._most:
            raise self.over()

    def over(self) -> ConnectionCut:
        """The error that says that it is more than a client may owe."""
        return ConnectionCut(f"the replies are larger than the {self._most} bytes a client may owe")

    def made(self, reply: Reply) -> Reply:
        """As bytes, in pieces, unless it is short."""
        kind = type(reply)
        if kind is Array:
            return InPieces([b"*%d\r\n" % reply.count, *reply.pieces])  # which were counted
        if kind in (list, tuple, dict, Pairs, Verbatim) or (kind is bytes and len(reply) > 1024):
            return InPieces(self._pieces(reply))
        self.count(64)
        return reply

    def _pieces(self, reply: Reply) -> list[bytes]:
        return encode_pieces(reply, self.protocol, self.count)

    def each_in(self, replies: list[Reply], protocols: Sequence[int]) -> list[Reply]:
        """Replies of which each is sent in its own protocol, as bytes."""
        made: list[Reply] = []
        for reply, protocol in zip(replies, protocols, strict=True):
            self.protocol = protocol
            made.append(reply if type(reply) is InPieces else InPieces(self._pieces(reply)))
        return made

    def rows(self) -> ReplyRows:
        """Rows that become bytes as they come."""
        return _EncodedRows(self)

    def room(self, part: int = 1) -> int:
        """How many bytes of memory values may take that become replies together: one of so many
        parts of what may still be owed. 0: any."""
        return max(1, (self._most - self.size) // part)


class _EncodedRows(ReplyRows):
    """Rows as bytes."""

    maker = _ENCODING

    def __init__(self, output: OutputBytes) -> None:
        self._output = output
        self._count = 0
        self._held = 0
        self._pieces: list[bytes] = []

    def add(self, rows: list[Reply]) -> None:
        """Rows that come next; they become bytes."""
        self._output.check()
        self._pieces += encode_pieces(rows, self._output.protocol, self._output.count, headed=False)
        self._count += len(rows)

    def first(self, lp: bytes, *node: Any) -> tuple[list[Any], bytes]:
        """What ``take`` takes of a node."""
        return _ENCODED_DELIVERIES(lp, *node)

    def take(self, found: list[Any]) -> None:
        """Entries that come next: they are bytes already."""
        if found:
            piece = b"".join([row[0] for row in filter(None, found)])  # one of each node
            self._output.count(len(piece))
            self._pieces.append(piece)
            self._count += len(found)

    def weigh(self, size: int) -> None:
        """Count bytes of values that wait to become rows; ``ConnectionCut`` if it is too much."""
        self._output.check()
        self._held += size
        if self._held > self._output.room():
            raise self._output.over()

    def done(self) -> Reply:
        """The array."""
        return Array(self._count, self._pieces)
