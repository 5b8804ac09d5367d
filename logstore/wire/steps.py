"""Steps: what a command does, decided from its words before anything is touched.

The function of a command turns words into a step. The runner may put several changes into one
commit, and the steps of a transaction, too.

Invariants: making a step changes nothing and reads nothing. A ``ReadStep`` holds a snapshot for one
``once`` at most, and never waits for the writer lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from logstore.api.opening import OpenStore
from logstore.codec import RowBatch
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups.deliver import Delivered
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.read import Batch, Maker
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.wire.partial_commits import PartialChange, Parts
from logstore.wire.resp.outgoing import Output, ReplyRows
from logstore.wire.resp.reply import NULL_ARRAY, OK, Reply

T = TypeVar("T")


class Request(Protocol):
    """The request, or requests, that a step was made of: it keeps how long they took."""

    def took(self, begun_ns: int) -> None:
        """The step, begun at ``begun_ns`` of ``time.perf_counter_ns``, has been run."""
        ...

    def failed(self, times: int = 1) -> None:
        """So many of the requests were answered with an error."""
        ...

    def ended(self) -> None:
        """They are answered, also if the step was not run."""
        ...


class RangeQuery(NamedTuple):
    """The first entries of a stream between two IDs, both included: at most ``limit``, made by
    ``maker`` (None: as the codec finds them)."""

    key: bytes
    low: StreamID
    high: StreamID
    limit: int
    maker: Maker | None
    reverse: bool


class Reader(Protocol):
    """Where a ``ReadStep`` reads: the store, or the state inside a transaction."""

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` finds on one snapshot; each call may see a later moment."""
        ...

    def record(self, key: bytes) -> StreamRecord | None:
        """The record of a stream."""
        ...

    def batch(self, query: RangeQuery) -> Batch | None:
        """What a query finds at one moment, by the shortest way there is; None where that is
        ``once``."""
        ...

    def rows(self) -> ReplyRows:
        """An array of many rows that is about to be made."""
        ...

    def check(self) -> None:
        """Raise if nobody waits for the reply any more; called within what may take long."""
        ...

    @property
    def now_ms(self) -> int:
        """The store's clock, or the transaction's moment."""
        ...


class Walk(Protocol):
    """A read on its way through its slices: others have their turn between two of them."""

    def slice(self, reader: Reader) -> bool:
        """Read what comes next, in a time that is bounded; whether another slice follows. What
        raises ``NotNow`` has read nothing: call it again."""
        ...

    def reply(self) -> Reply:
        """The reply for all slices so far."""
        ...


def same(result: Any) -> Reply:
    """The result as the reply."""
    return result


def ok(_result: Any) -> Reply:
    """OK, whatever the result."""
    return OK


class PlainAdd(NamedTuple):
    """The entry of a plain XADD, one with ``*`` and no option."""

    key: bytes
    pairs: list[tuple[bytes, bytes]]


ROW_BYTES = 512  # that cost about as much as one more row
Beside: TypeAlias = Callable[[OpenStore[bytes]], Reply | None]


@dataclass(slots=True)
class Change:
    """An operation of the engine, run in a commit; ``frees`` ones also run on a full disk.

    Those with a ``row`` that follow each other and go to one stream may become one operation.
    """

    op: Callable[[WriteTxn], Any]
    reply: Callable[[Any], Reply] = same
    frees: bool = False
    prepare: Callable[[], object] | None = None  # long work before it, in the thread, with no lock
    request: Request | None = None
    row: PlainAdd | None = None
    cost: int = 0  # about how many rows it writes, by its bytes, too; 0: that is not known
    # The same as a commit beside the pipeline, without a wait: its reply; None: nothing happened.
    beside: Beside | None = None
    parts: Callable[[Output], Parts] | None = None  # the same as several commits, where it may be
    begun: PartialChange | None = None  # it is amid them


@dataclass(slots=True)
class JoinedAdds:
    """Plain XADDs to one stream that came as bytes one behind the other: their rows were made of
    the bytes at once, no request by itself; its reply has those of all."""

    key: bytes
    rows: RowBatch
    size: int  # bytes of the requests
    request: Request | None = None


@dataclass(slots=True)
class ReadStep:
    """A read without a commit; one that may be long is also a walk."""

    find: Callable[[Reader], Reply]
    request: Request | None = None
    walk: Callable[[], Walk] | None = None
    begun: Any = None  # it is amid its slices: a ``runner.Reading``
    light: bool = False  # a few rows of the index, whatever is stored: less than a hop to a thread


def walked(begin: Callable[[], Walk]) -> ReadStep:
    """A look that is a walk; where nobody else waits for a turn it is done in one go."""

    def find(reader: Reader) -> Reply:
        walk = begin()
        while walk.slice(reader):
            pass
        return walk.reply()

    return ReadStep(find, walk=begin)


@dataclass(slots=True)
class ReplyStep:
    """A reply that needs no store; made when its turn comes."""

    make: Callable[[], Reply]
    request: Request | None = None
    light: bool = False  # it changes nothing, also not what the client has set


def done(act: Callable[[], object]) -> ReplyStep:
    """A step that does something at once, without the store; the reply is OK."""
    return ReplyStep(lambda: ok(act()))


@dataclass(slots=True)
class Unread:
    """A request of so many words that it is made a step in a thread."""

    make: Callable[[], CommandStep]


@dataclass(slots=True)
class Admin:
    """Work on the store as a whole, in a thread, outside any transaction."""

    work: Callable[[], Reply]
    commits: bool = True  # it may; else it reads
    request: Request | None = None


class QueuedRead(NamedTuple):
    """New entries of one group, for which a client waits in the queue of the group."""

    stream: bytes
    group: bytes
    consumer: bytes
    once: Callable[[WriteTxn, bool], list[Delivered]]  # with False it takes nothing new
    reply: Callable[[list[Delivered]], Reply]
    limit: int  # of entries; 0: none
    asked_idle_ms: int | None
    noack: bool
    measured: bool  # it counts bytes


@dataclass(slots=True)
class Block:
    """A read that waits until it finds something: tried at once, and whenever a key changes; or in
    the queue of a ``group``.
    """

    attempt: Change | ReadStep  # its reply is ``empty`` if there was nothing
    keys: Sequence[bytes]
    timeout_ms: int | None  # None: for ever
    worth: Callable[[Reader], bool] | None = None  # looks first whether trying can give anything
    empty: Reply = NULL_ARRAY
    pause_ms: Callable[[Reader], int | None] | None = None  # when time alone brings something
    group: QueuedRead | None = None
    refusal: Callable[[], Reply | None] | None = None  # asked again after a wait: None: permitted


def commits(step: CommandStep) -> bool:
    """Whether running it may want the writer lock."""
    if isinstance(step, Block):
        step = step.attempt
    return (
        step.commits
        if isinstance(step, Admin)
        else not isinstance(step, ReadStep | ReplyStep | Unread)
    )


CommandStep: TypeAlias = Change | JoinedAdds | ReadStep | ReplyStep | Admin | Block | Unread
