"""The handle of a store: how it is opened, closed, sent elsewhere, and reached.

Invariants: handles are safe in threads, pickle as path and options, and reopen by themselves after
fork; a store is given back once. It knows no operation: those are of :class:`logstore.Store`.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from logstore.api import opening
from logstore.engine.commit.committer import Op
from logstore.engine.registry import Shared
from logstore.engine.runtime import reserve
from logstore.engine.runtime.engine import Engine
from logstore.errors import ClosedError
from logstore.options import StoreLimits, StoreOptions, Sync, check_sync

if TYPE_CHECKING:
    from logstore.api.dead_letters import OnDead

T = TypeVar("T", bytes, str)


class StoreHandle(Generic[T]):
    """One open store, without what can be done with it."""

    def __init__(
        self, path: Path, options: StoreOptions, encoding: str | None, limits: StoreLimits, *,
        create: bool, uuid: bytes | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.encoding = encoding
        self._options = options
        self._limits = limits
        self._shared: Shared | None = None
        self._closed = False
        self._on_dead: list[OnDead[T]] = []
        self._shared = opening.acquire(path, options, limits, create=create, uuid=uuid)

    # -- lifetime -----------------------------------------------------------------------------
    def close(self) -> None:
        """Give the store back; the last handle of the last process leaves it cleanly closed."""
        if self._closed:
            return
        if self._shared is not None:
            self._shared.refuse_inside()
        self._closed = True
        shared, self._shared = self._shared, None
        if shared is not None:
            opening.release(shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is not None and opening is not None and not shared.forked:  # None: at exit
            opening.abandon(shared)

    def __repr__(self) -> str:
        return f"<Store {str(self.path)!r}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        uuid = None if self._shared is None else self._shared.engine.uuid
        return (_reopen, (type(self), str(self.path), self._options, self.encoding, uuid))

    def _live(self) -> Shared:
        shared = self._shared
        if shared is None:
            raise ClosedError("the store is closed: open it again")
        if shared.forked:
            # By the directory that the parent had open, whatever stands at the path by now.
            uuid, path = shared.engine.uuid, shared.engine.path
            shared = opening.acquire(path, self._options, self._limits, create=False, uuid=uuid)
            self._shared = shared
        if shared.engine.gone:
            shared.engine.check_open()  # raises; those who wait look here now and then
        return shared

    def _engine(self) -> Engine:
        return self._live().engine

    def _commit(self, op: Op, sync: Sync | None) -> Any:
        shared = self._live()
        reserve.check(shared.engine)
        return self._run(shared, op, sync)

    @staticmethod
    def _run(shared: Shared, op: Op, sync: Sync | None) -> Any:
        if sync is not None:
            check_sync(sync)
        return shared.committer.run(op, sync)

    def _free(self, op: Op, sync: Sync | None) -> Any:
        """A commit that gives space back: on a full disk, in the space set aside."""
        shared = self._live()
        return reserve.freeing(shared.engine, lambda: self._run(shared, op, sync))

    def _text(self, name: bytes) -> bytes | str:
        return name if self.encoding is None else name.decode(self.encoding, "surrogateescape")


def _reopen(
    kind: type[StoreHandle[Any]], path: str, options: StoreOptions, encoding: str | None,
    uuid: bytes | None = None,
) -> StoreHandle[Any]:  # fmt: skip
    return kind(Path(path), options, encoding, StoreLimits(), create=False, uuid=uuid)
