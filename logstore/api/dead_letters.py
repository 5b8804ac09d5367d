"""Dead letters: telling somebody of entries that were given up.

The engine moves them (``groups.dead_letter``); who did the commit tells of it afterwards: a warning
in the log, the callbacks that were registered with ``store.on_dead_letter``, a worker's
``on_dead``.

Invariants: telling comes after the commit, with no lock held, so that a callback may use the store;
what a callback raises is logged and goes no further. Whoever is killed in between has told nobody:
the dead letter stream itself is the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from logstore.api.entry import Entry
from logstore.api.handlers import PLAIN, not_done
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Op
from logstore.engine.groups.dead_letter import Buried
from logstore.ids import StreamID
from logstore.logger import Logger
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.api.group import Group
    from logstore.api.store import Store

T = TypeVar("T", bytes, str)
log = Logger("logstore")
WARNINGS_MAX = 10  # of one commit; the rest are summed up


class DeadLetter(Entry[T], Generic[T]):
    """An entry that was given up: its own ID and fields, and what became of it.

    ``group`` is where it was pending, ``consumer`` who had it last (None: it was given back),
    ``delivery_count`` how often it was delivered, ``error`` the reason as text, ``dead_letter`` the
    stream where it is now, and ``dead_id`` its ID there.
    """

    __slots__ = ("consumer", "dead_id", "dead_letter", "delivery_count", "error", "group")

    def __init__(self, store: Store[T], buried: Buried) -> None:
        encoding = store.encoding
        flat: list[Any] = buried.items
        if encoding is not None:
            flat = [part.decode(encoding, "surrogateescape") for part in flat]
        super().__init__(buried.id, flat, encoding)
        self.group: Group[T] = store.stream(buried.origin).group(buried.group)
        name = cast(T, store._text(buried.consumer))
        self.consumer: T | None = name if buried.consumer else None
        self.delivery_count = buried.count
        self.error = buried.error.decode("utf-8", "replace")
        self.dead_letter: T = cast(T, store._text(buried.stream))
        self.dead_id: StreamID = buried.dead_id

    def __repr__(self) -> str:
        return (
            f"DeadLetter({self.id}, {self.fields!r}, {self.delivery_count} deliveries, "
            f"{self.error!r}, now {self.dead_id} of {self.dead_letter!r})"
        )


OnDead: TypeAlias = Callable[[DeadLetter[T]], object]


def run(
    store: Store[T], op: Op, sync: Sync | None, *, free: bool = False,
    on_dead: OnDead[T] | None = None,
) -> Any:  # fmt: skip
    """Commit an operation that may bury entries, and tell of those it did; its result.

    ``free``: it gives space back, as acks do.
    """

    def noted(state: WriteTxn) -> tuple[Any, list[Buried]]:
        before = len(state.buried)
        result = op(state)
        return result, state.buried[before:]

    result, buried = (store._free if free else store._commit)(noted, sync)
    if buried:
        tell(store, buried, on_dead)
    return result


def tell(store: Store[T], buried: list[Buried], on_dead: OnDead[T] | None = None) -> None:
    """Log what was buried, then call whoever wants to know: the worker's callback first."""
    letters: list[DeadLetter[T]] = [DeadLetter(store, each) for each in buried]
    for each in letters[:WARNINGS_MAX]:
        log.warning(
            "entry %s of %r moved to %r after %d deliveries (group %r, consumer %r): %s",
            each.id, each.group.stream.name, each.dead_letter, each.delivery_count, each.group.name,
            each.consumer, each.error,
        )  # fmt: skip
    if len(letters) > WARNINGS_MAX:
        log.warning("and %d more in the same commit", len(letters) - WARNINGS_MAX)
    callbacks: list[OnDead[Any]] = list(store._on_dead)
    if on_dead is not None:
        callbacks.insert(0, on_dead)
    for each in letters:
        for callback in callbacks:
            try:
                undone = not_done(callback(each), "a callback for dead letters", PLAIN)
                if undone is not None:
                    raise undone
            except Exception:
                log.exception("a callback for dead letters failed at entry %s", each.id)
