"""What a transaction collects: steps, each with the outcome that it will have.

Invariants: nothing is decided, and no lock taken, before ``commit``; the steps are one commit, in
the order in which they were taken; outcomes are set when it is through. Knows no stream and no
group by its methods; these stand above and take their steps here.

While all steps are plain adds (``engine/lane``) or acks of deliveries they are kept as names, and
entries or fences: then they may be committed beside the pipeline. What becomes a step of the
pipeline after all keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Op
from logstore.engine.groups import ack
from logstore.engine.streams import add
from logstore.errors import DiskFullError, UsageError
from logstore.ids import StreamID
from logstore.options import SYNC_RANK, Sync, check_sync

if TYPE_CHECKING:
    from logstore.engine.lane.native import Options

T = TypeVar("T", bytes, str)
R = TypeVar("R")


class Pending(Generic[R]):
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_made", "_value")

    def __init__(self, made: Callable[[Any], R] | None = None) -> None:
        self._done = False
        self._made = made
        self._value: Any = None

    def settle(self, value: Any) -> None:
        """Set the outcome, once it counts."""
        self._value = value if self._made is None else self._made(value)
        self._done = True

    @property
    def result(self) -> R:
        """What the operation gave: an ID, a count. UsageError before the commit."""
        if not self._done:
            raise UsageError("known after the commit: leave the with block first")
        value: R = self._value
        return value

    @property
    def id(self) -> StreamID:
        """The ID that an add was given. UsageError before the commit."""
        result = self.result
        if not isinstance(result, StreamID):
            raise UsageError("this operation gives no ID")
        return result


class Steps(Generic[T]):
    """The steps of one transaction."""

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self.opened: OpenStore[T] = opened
        self.over = False
        self._sync: Sync | None = sync
        self._taken: list[tuple[Callable[[WriteTxn], Any], Pending[Any]]] = []
        # Plain adds and acks, of which there are none once another step was taken: the name of the
        # stream, then an entry and its options, or a tuple of what ``ack.fenced_ack`` takes behind
        # the name.
        self._entries: list[tuple[bytes, dict[Any, Any] | tuple[Any, ...], Options | None]] = []
        self._added: list[Pending[Any]] = []
        self._frees = True  # every step so far gives space back
        self.purges = False  # what is deleted is erased after the commit

    def check_open(self) -> None:
        """UsageError if the transaction is over."""
        if self.over:
            raise UsageError("the transaction is over: begin a new one")

    def do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step that a function of the engine decides, with these arguments."""
        return self.take(partial(decide, **asked))

    def free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step, likewise, that gives space back."""
        return self.take(partial(decide, **asked), frees=True)

    def take(
        self,
        step: Callable[[WriteTxn], Any],
        made: Callable[[Any], R] | None = None,
        *,
        frees: bool = False,
        sync: Sync | None = None,
    ) -> Pending[R]:
        """Take a step; ``made`` makes the result of what it gives, after the commit. ``sync`` asks
        for more than the steps before did."""
        self.check_open()
        if sync is not None:
            check_sync(sync)
            if self._sync is None or SYNC_RANK[sync] > SYNC_RANK[self._sync]:
                self._sync = sync
        if self._added:
            self._through_pipeline()
        pending: Pending[R] = Pending(made)
        self._taken.append((step, pending))
        self._frees = self._frees and frees
        return pending

    def add_plain(
        self, name: bytes, fields: object, options: Options | None = None
    ) -> Pending[StreamID] | None:
        """Take an add, if it is plain; None: nothing was taken, ``take`` it. ``options`` as
        ``OpenStore.add_plain`` has them."""
        self.check_open()
        if self._taken or (entry := self.opened.plain_entry(fields, options)) is None:
            return None
        pending: Pending[StreamID] = Pending()
        self._entries.append((name, entry, options))
        self._added.append(pending)
        return pending

    def acks(self, fences: list[tuple[bytes, tuple[Any, ...]]]) -> Pending[int]:
        """Take the acks of deliveries, each by its stream and what ``ack.fenced_ack`` takes behind
        that; the outcome counts them."""
        self.check_open()
        if len(fences) != 1:
            pending: Pending[int] = Pending(partial(_told, len(fences)))
        else:
            pending = Pending()
        if self._taken or not fences:
            if self._added:
                self._through_pipeline()
            return self._take_acks(fences, pending)
        for stream, fence in fences:
            self._entries.append((stream, fence, None))
            self._added.append(pending)
        return pending

    def _take_acks(
        self, fences: list[tuple[bytes, tuple[Any, ...]]], pending: Pending[int]
    ) -> Pending[int]:
        for stream, fence in fences:
            self._taken.append((partial(_acked, stream=stream, fence=fence), pending))
        if not fences:
            self._taken.append((_nothing, pending))
        return pending

    def _through_pipeline(self) -> None:
        """Plain adds and acks become steps like others."""
        encoding = self.opened.encoding
        for (name, entry, options), pending in zip(self._entries, self._added, strict=True):
            if isinstance(entry, tuple):
                self._take_acks([(name, entry)], pending)
                continue
            request = _asked(name, entry, encoding, options)
            self._taken.append((partial(add.add_first, request=request), pending))
            self._frees = False
        self._entries, self._added = [], []

    def _beside_pipeline(self) -> bool:
        """Commit plain adds and acks in the lane; False: nothing has happened."""
        try:
            done = self.opened.add_all_plain(self._entries)
        except DiskFullError:  # nothing happened: the pipeline has space set aside for acks
            return False
        if not done:
            return False
        for pending, value in zip(self._added, done, strict=True):
            pending.settle(value)
        return True

    def commit(self) -> bool:
        """Commit all steps, and set their outcomes; False if there are none."""
        self.check_open()
        self.over = True
        if self._added:
            if self._sync is None and self._beside_pipeline():
                return True
            self._through_pipeline()
        taken = self._taken
        if not taken:
            return False

        def run(txn: WriteTxn) -> list[Any]:
            return [step(txn) for step, _ in taken]

        done = self.opened.commit_telling(run, self._sync, frees=self._frees)
        for (_, pending), value in zip(taken, done, strict=True):
            pending.settle(value)
        if self.purges:
            self.opened.compact(purge=True)
        return True


class Recording(Generic[T]):
    """What a stream and a group have in place of their store inside a transaction: what they would
    commit becomes a step, and what they give is its outcome."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps: Steps[T] = steps
        self.encoding = steps.opened.encoding
        self.engine = steps.opened.engine

    def commit(
        self, op: Op, sync: Sync | None = None, *, made: Callable[[Any], Any] | None = None
    ) -> Any:
        """Take a step."""
        return self._steps.take(op, made, sync=sync)

    def free(
        self, op: Op, sync: Sync | None = None, *, made: Callable[[Any], Any] | None = None
    ) -> Any:
        """Take a step that gives space back."""
        return self._steps.take(op, made, frees=True, sync=sync)

    def hand_on(self, step: Op, sync: Sync | None = None, *, frees: bool = False) -> Any:
        """Take a step that gives back or hands on what is pending."""
        return self._steps.take(step, frees=frees, sync=sync)

    def ack_plain(self, *_: object) -> None:
        """Nothing is committed at once."""

    def delete_plain(self, *_: object) -> None:
        """Nothing is committed at once."""

    def compact(self, *, purge: bool) -> None:
        """Erase what is deleted once it is committed."""
        self._steps.purges = purge


def _acked(txn: WriteTxn, stream: bytes, fence: tuple[Any, ...]) -> int:
    ack.fenced_ack(txn, stream, *fence)
    return 1


def _nothing(_: WriteTxn) -> int:
    return 0


def _told(count: int, _: object) -> int:
    return count


def _asked(
    name: bytes, entry: dict[Any, Any], encoding: str | None, options: Options | None
) -> add.Add:
    """What the engine is asked for by a plain add."""
    ids: add.AutoID | StreamID = add.AUTO
    rule = None
    if options is not None:
        id, maxlen, minid, approximate, limit, _ = options
        ids = arguments.add_id(id)
        rule = arguments.Trimming(maxlen, minid, approximate, limit, "keep").rule()
    return add.Add(name, arguments.rows([entry], encoding), 0, 1, ids, True, rule)
