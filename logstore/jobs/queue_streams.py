"""The streams of a queue of jobs, and how its entries are written.

A job is an entry of the queue's stream: its ID (a text of its own, so that a job that was given
back or is scheduled keeps it), the task's name and the arguments. What became of it is an entry of
the stream ``<queue>:results``; jobs that were given up are in ``<queue>:dead``.

Invariant: the store is opened when it is needed first, so that a module with tasks can be imported
by whoever wants.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any, Self

from logstore.api import arguments, values
from logstore.api.entry import Entry
from logstore.api.group import Group
from logstore.api.open_store import open_store
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.errors import EntryTypeError, OptionError, UsageError, shown
from logstore.options import Sync, seconds

GROUP = "workers"
# What the group gives up by itself, if no worker does: more than any task's retries and deaths.
DELIVERIES_MAX = 10_000


class QueueStreams:
    """The streams of one queue in a store."""

    def __init__(
        self,
        store: Store[Any] | str | os.PathLike[str],
        queue: str,
        codec: str | values.ValueCodec,
        keep_results: timedelta | float,
        min_idle: timedelta | float,
        sync: Sync | None,
    ) -> None:
        if not isinstance(store, Store | str | os.PathLike):
            raise OptionError(f"give an open store or a path, not {shown(store)}")
        self._given = store
        self._store: Store[Any] | None = store if isinstance(store, Store) else None
        self._lock = threading.Lock()
        self._codec = values.value_codec(codec)
        self._keep_results = timedelta(seconds=length_s(keep_results, "keep_results"))
        self._min_idle = timedelta(seconds=length_s(min_idle, "min_idle"))
        self._ready = False
        self.queue = queue
        self.sync: Sync | None = sync

    @property
    def store(self) -> Store[Any]:
        """The store, opened now if it was not."""
        with self._lock:
            if self._store is None:
                assert not isinstance(self._given, Store)
                self._store = open_store(self._given, encoding="utf-8")
            return self._store

    @property
    def stream(self) -> Stream[Any]:
        """The queue's stream."""
        return self.store.stream(self.queue)

    @property
    def results(self) -> Stream[Any]:
        """The stream of results."""
        return self.store.stream(f"{self.queue}:results")

    @property
    def dead(self) -> Stream[Any]:
        """The stream of jobs that were given up; ``store.requeue`` gives them back."""
        return self.store.stream(f"{self.queue}:dead")

    @property
    def group(self) -> Group[Any]:
        """The group of the workers."""
        return self.stream.group(GROUP)

    def ready(self) -> None:
        """Have the group made and the streams configured."""
        if self._ready:
            return
        self.stream.group(GROUP, start="0").configure(
            max_deliveries=DELIVERIES_MAX,
            dead_letter=f"{self.queue}:dead",
            min_idle=self._min_idle,
        )
        self.store.create(self.results.name)
        self.results.configure(max_age=self._keep_results)
        self._ready = True

    def close(self) -> None:
        """Close the store, if this opened it."""
        with self._lock:
            opened, self._ready = self._store, False
            if opened is not None and opened is not self._given:
                self._store = None
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how jobs are written --------------------------------------------------------------------
    def encoded(self, value: Any, what: str) -> bytes:
        """A value as the codec writes it. EntryTypeError."""
        try:
            return self._codec.encode(value)
        except Exception as error:
            raise EntryTypeError(
                f"the codec {self._codec.name!r} cannot hold {what}: {error}; give what it holds, "
                "or another codec"
            ) from error

    def decoded(self, data: bytes) -> Any:
        """The value of what stands in a field. UsageError if the codec cannot read it."""
        try:
            return self._codec.decode(data)
        except Exception as error:
            raise UsageError(
                f"the codec {self._codec.name!r} cannot read what is stored: {error}; was the "
                "queue used with another codec?"
            ) from error

    def fields(self, entry: Entry[Any]) -> dict[bytes, bytes]:
        """The fields of an entry as bytes, whatever the store's encoding."""
        encoding = self.store.encoding
        if encoding is None:
            return dict(entry.pairs)
        return {
            name.encode(encoding, "surrogateescape"): value.encode(encoding, "surrogateescape")
            for name, value in entry.pairs
        }


def length_s(given: timedelta | float, name: str) -> float:
    """Seconds of a length of time. OptionError."""
    arguments.milliseconds(given, name)
    return seconds(given, name)
