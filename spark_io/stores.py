"""The stores of a load, as planning sees them: `opened` is the one place where they are opened.

A place is what `places` made of the option `path`: a directory, which is opened with its index, or
a URI, of which a view is opened, which makes an index of its own.

Invariants: nothing that is sent to a task holds a store; what a plan names is durable, or never
changes, before a task can read it; a store is closed again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from logstore.api.open_store import open_store
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.errors import OptionError
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import pinfile
from logstore.log.shipped import is_shipped
from logstore.scan import absent
from logstore.scan import split_plan as plan
from logstore.scan.moment import Kept
from logstore.scan.split_plan import Plan
from logstore.spark_io import split_batches
from logstore.spark_io.source_options import SourceOptions
from logstore.uri_path import path_of, shown

SAMPLED_ENTRIES = 20


class PlannedStore(Protocol):
    """What planning asks of a store."""

    place: str

    def has(self, name: bytes) -> bool:
        """Whether there is a stream of this name."""
        ...

    def names(self) -> list[bytes]:
        """The streams."""
        ...

    def fields(self, name: bytes, start: StreamID, end: StreamID) -> set[str]:
        """The names of fields in the first and last entries of a range."""
        ...

    def delivered(self, name: bytes, group: str) -> StreamID:
        """The last ID that a group of a stream was given; GroupNotFoundError."""
        ...

    def plan(
        self,
        names: Sequence[bytes],
        start: StreamID,
        end: StreamID,
        parts: int | None,
        cores: int,
        counting: bool,
    ) -> Plan:
        """The splits of a range of streams, pinned, and durable."""
        ...


def driver() -> Identity:
    """The process whose end ends the plans made here: Spark's driver.

    A planner is a process of its own that ends with the plan. Spark's driver is the Java virtual
    machine above it, which also ends when the Python script that started it does.
    """
    return process_identity.identity(process_identity.ancestor("java"))


@contextmanager
def opened(options: SourceOptions, place: str) -> Iterator[PlannedStore]:
    """One of the stores of a load."""
    if options.as_of and is_shipped(path_of(place)):
        raise OptionError(
            f"option 'asOf': {shown(place)} was shipped, and is of one moment: leave the option out"
        )
    with local(options, place) as store:
        kind = StoreAsOf if options.as_of else LocalStore
        yield kind(options, place, store)


def local(options: SourceOptions, place: str) -> Store[bytes]:
    """A store in a directory, with its index; or a view of what was shipped of one."""
    readonly = bool(options.snapshot_dir) or is_shipped(path_of(place))
    return open_store(place, create=False, background=False, readonly=readonly)


def check_segments(options: SourceOptions, store: Store[bytes], made: Plan) -> None:
    """CorruptionError, or a line of the log, for what is known to be lost before a job begins;
    the plan's tasks tell the same again, and more."""
    found = absent.known(opened_of(store).engine(), made)
    if found and options.fail_on_loss:
        raise found[0].told(split_batches.ADVICE)
    split_batches.tell(str(store.path), found, "tasks will leave out")


class LocalStore:
    """A store in a directory, or at a URI."""

    def __init__(self, options: SourceOptions, place: str, store: Store[bytes]) -> None:
        self.place = shown(place)
        self._options = options
        self._store = store
        self._token = ""

    def has(self, name: bytes) -> bool:
        """Whether there is a stream of this name."""
        return name in self._store

    def names(self) -> list[bytes]:
        """The streams."""
        return self._store.streams()

    def fields(self, name: bytes, start: StreamID, end: StreamID) -> set[str]:
        """The names of fields in the first and last entries of a range."""
        stream = self._store.stream(name)
        first = stream.range(start, end, count=SAMPLED_ENTRIES)
        last = stream.range(start, end, count=SAMPLED_ENTRIES, reverse=True)
        return {
            field.decode("utf-8", "replace") for each in (*first, *last) for field in each.fields
        }

    def delivered(self, name: bytes, group: str) -> StreamID:
        """The last ID that a group of a stream was given; GroupNotFoundError."""
        return self._store.stream(name).group(group).info().last_delivered_id

    def plan(
        self,
        names: Sequence[bytes],
        start: StreamID,
        end: StreamID,
        parts: int | None,
        cores: int,
        counting: bool,
    ) -> Plan:
        """The splits of a range of streams, pinned, and durable."""
        options = self._options
        made = plan.make(
            opened_of(self._store).engine(),
            names,
            start,
            end,
            min_partitions=parts,
            cores=cores,
            ttl_ms=options.pin_ms,
            home=Path(options.snapshot_dir) if options.snapshot_dir else None,
            owner=driver(),
            purpose="spark",
            moment=self._token,
            lossy=not options.fail_on_loss,
            counting=counting,
        )
        check_segments(options, self._store, made)
        if not opened_of(self._store).engine().options.readonly:
            self._store.sync()
        return made


class StoreAsOf(LocalStore):
    """A store in a directory as it was at a moment that is kept."""

    def __init__(self, options: SourceOptions, place: str, store: Store[bytes]) -> None:
        super().__init__(options, place, store)
        here = [each for each in options.as_of if LOCAL.exists(pinfile.path(Path(place), each))]
        if len(here) > 1:
            raise OptionError(f"option 'asOf' names two moments of {place}: leave one out")
        (self._token,) = here or options.as_of[:1]  # of one that is over the error is told
        engine = opened_of(store).engine()
        now_ms = engine.clock.now_ms()
        self._streams = Kept(engine.fs, engine.path, engine.uuid, self._token, now_ms).streams

    def has(self, name: bytes) -> bool:
        """Whether there was a stream of this name."""
        return name in self._streams

    def names(self) -> list[bytes]:
        """The streams that there were."""
        return sorted(self._streams)

    def fields(self, name: bytes, start: StreamID, end: StreamID) -> set[str]:
        """As they are now: a hint against a wrong case, and no more."""
        return super().fields(name, start, end) if super().has(name) else set()
