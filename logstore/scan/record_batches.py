"""Nodes into Arrow record batches of bounded size, and what of them cannot be read.

`Gather` takes nodes and gives batches. `LocatedReader` feeds it nodes by their locators: scans of
an open store and of a split share this loop. Compiled code takes runs of nodes out of the bytes
that it is given. It leaves a node where the batch is full, where its bytes are elsewhere, or where
the node is doubtful. A doubtful node is read alone, as any single node is read: so its error says
what is wrong and where. The error is raised, or `Losses` takes it.

A name that is none of the standard columns is a field of the entries: a column of text, null where
an entry has no such field, the last value where it has several.

Invariants: a batch has at most ``batch_rows`` rows and, but for its last node, at most BATCH_BYTES;
rows come in the order of IDs; columns come in the order asked for; a batch without columns still
has its rows. Every node is added once, in order, or is in one loss, or its error is raised. The IDs
of a loss lie in the interval that was asked for. Neither the engine nor the index may be imported
here, for Spark's executors load this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from logstore import format as fmt
from logstore.codec import ARROW_COLUMNS, ID, ArrowBuilder, Section, codec
from logstore.codec.node_list import Item, read_item
from logstore.errors import CorruptionError, CorruptNodeError, OptionError
from logstore.ids import U64_MAX, StreamID
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.codec.arrow_builder import NameGuard


BATCH_BYTES = 8 << 20
BATCH_ROWS = 65536
BATCH_ROWS_MAX = 16_777_216


class ColumnSource(NamedTuple):
    """What a column is gathered from: a ``standard`` column of the codec, or the field of this
    name. ``binary``: values stay bytes."""

    name: str
    standard: bool
    binary: bool = False


class Gather:
    """Gathers nodes into record batches. ``binary`` names columns whose values stay bytes;
    ``guard`` refuses fields that would be taken for columns."""

    def __init__(
        self,
        columns: Sequence[str | ColumnSource] | None = None,
        batch_rows: int = BATCH_ROWS,
        *,
        binary: Collection[str] = (),
        guard: NameGuard | None = None,
    ) -> None:
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise OptionError(f"batch_rows must be 1 to {BATCH_ROWS_MAX}: {batch_rows}")
        self._sources = [
            each
            if isinstance(each, ColumnSource)
            else ColumnSource(each, each in ARROW_COLUMNS, each in binary)
            for each in (ARROW_COLUMNS if columns is None else columns)
        ]
        # A column that is asked for twice is built once. One that is asked for as text and as bytes
        # needs two builders.
        first: dict[tuple[str, bool], ColumnSource] = {}
        for each in self._sources:
            first.setdefault((each.name, each.standard), each)
        both = dict.fromkeys(each for each in self._sources if each not in first.values())
        split = [list(first.values()), list(both)] if both else [list(first.values())]
        self._parts = [_Columns(each, guard) for each in split]
        self._builders = [each.builder for each in self._parts]
        self._batch_rows = batch_rows
        self.add: Callable[[bytes, bytes, int, int, bytes, ID, ID], int] = (
            self._add_to_all if len(self._builders) > 1 else self._builders[0].add
        )

    @classmethod
    def counting(cls) -> Gather:
        """One that counts any number of rows and keeps no column; it needs no pyarrow."""
        made = cls([])
        made._batch_rows = U64_MAX
        return made

    @property
    def rows(self) -> int:
        """Rows since the last batch was taken."""
        return self._builders[0].rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        import pyarrow as pa

        from logstore.codec.arrow_builder import arrow_type

        return pa.schema(
            [
                (each.name, arrow_type(each.name if each.standard else "", each.binary))
                for each in self._sources
            ]
        )

    def _add_to_all(
        self, name: bytes, lp: bytes, ms: int, seq: int, vector: bytes, start: ID, end: ID
    ) -> int:
        return max([each.add(name, lp, ms, seq, vector, start, end) for each in self._builders])

    def add_located(
        self, section: Section, items: bytes, at: int, data: bytes, position: int, seed: int
    ) -> int:
        """Add nodes by their locators, as `ArrowBuilder.add_located` does."""
        if len(self._builders) > 1:  # add none here: a node goes to all builders or to none
            return at
        return self._builders[0].add_located(
            section, items, at, data, position, seed, self._batch_rows, BATCH_BYTES
        )

    def is_full(self, more_rows: int) -> bool:
        """Whether the batch must be taken before a node of so many rows is added."""
        rows = self._builders[0].rows
        return rows > 0 and (
            rows + more_rows > self._batch_rows
            or sum(each.nbytes for each in self._builders) >= BATCH_BYTES
        )

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was gathered: one batch, or several if one node has more rows than a batch."""
        if not self._builders[0].rows:
            return
        batch = self._finish()
        for at in range(0, batch.num_rows, self._batch_rows):
            yield batch if batch.num_rows <= self._batch_rows else batch.slice(at, self._batch_rows)

    def _finish(self) -> pa.RecordBatch:
        import pyarrow as pa

        if not self._sources:  # only the builder's own batch keeps the number of rows then
            return self._builders[0].finish()
        found: dict[ColumnSource, tuple[pa.Field, pa.Array]] = {}
        for part in self._parts:
            batch = part.builder.finish()
            found.update(
                (source, (batch.schema.field(at), batch.column(at)))
                for at, source in enumerate(part.order)
            )
        schema = pa.schema([found[source][0] for source in self._sources])
        return pa.RecordBatch.from_arrays(
            [found[source][1] for source in self._sources], schema=schema
        )


class _Columns:
    """A builder, and the sources of its columns in order."""

    def __init__(self, sources: Iterable[ColumnSource], guard: NameGuard | None) -> None:
        standard = [each for each in sources if each.standard]
        fields = [each for each in sources if not each.standard]
        self.order = standard + fields
        self.builder: ArrowBuilder = codec().ArrowBuilder(
            [each.name for each in standard],
            [each.name for each in fields],
            [each.binary for each in self.order],
            guard,
        )


READ_BYTES = 256 << 10  # it stays in the cache of a core until its nodes are decoded
GAP_MAX_BYTES = 16 << 10  # between nodes: what is between them is read, too


def read_size(items: bytes, at: int, most_bytes: int = READ_BYTES) -> int:
    """How many bytes of the log to read at once for the nodes of a list from an offset on: those of
    the first node, and of nodes behind it up to ``most_bytes``."""
    return codec().stretch_bytes(items, at, GAP_MAX_BYTES, most_bytes)


class NodeBytes(Protocol):
    """Reads the bytes of nodes."""

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment from a position on, as far as they can be read."""
        ...

    def listpack(self, section: Section, item: Item) -> bytes:
        """The checked listpack of one node in a frame; CorruptionError if it is damaged."""
        ...


class LocatedReader:
    """Adds lists of nodes to a `Gather`. It keeps the bytes it read for the next list.

    ``at``: how far the last list was added, also where an error ended it. ``losses`` takes errors;
    None: they are raised. ``at_once_bytes``: how much is read at once; 0: a node at a time."""

    def __init__(
        self,
        nodes: NodeBytes,
        seed: int,
        losses: Losses | None = None,
        *,
        at_once_bytes: int = READ_BYTES,
    ) -> None:
        self.at = 0
        self._at_once_bytes = at_once_bytes
        self._losses = losses
        self._lost_upto = -1  # the end, in the list, of the last node that was lost
        self._nodes = nodes
        self._seed = seed
        self._data = b""
        self._position = 0

    def add(self, gather: Gather, section: Section, items: bytes, at: int) -> int:
        """Add a list of nodes from an offset on. The offset of the first node that did not fit into
        the batch, or the end of the list."""
        self.at = at
        if not at:  # a new list
            self._lost_upto = -1
        while True:
            at = gather.add_located(section, items, at, self._data, self._position, self._seed)
            self.at = at
            if at == len(items):
                return at
            found = read_item(items, at)
            if found is None:
                raise CorruptionError("a list of nodes is cut off", stream=section[0])
            item, after = found
            if gather.is_full(item.live):
                return at
            try:
                if item.position and not self._has(item):
                    size = read_size(items, at, self._at_once_bytes)
                    data = self._nodes.around(item.position, size)
                    self._data, self._position = data, item.position
                    if self._has(item):
                        continue
                self._add_one(gather, section, item)
            except CorruptionError as error:
                error.stream = section[0]
                if self._losses is None:
                    raise
                self._losses.add_node(section, item, error, beside=at == self._lost_upto)
                self._lost_upto = after
            self.at = at = after

    def _has(self, item: Item) -> bool:
        """Whether the bytes hold the frame of a node."""
        at = item.position - self._position
        return 0 <= at <= len(self._data) - fmt.FRAME_HEAD_BYTES - item.size_bytes

    def _add_one(self, gather: Gather, section: Section, item: Item) -> None:
        name, _, start, end = section
        lp = self._nodes.listpack(section, item) if item.position else item.lp
        try:
            gather.add(name, lp, *item.master, item.vector, start, end)
        except CorruptNodeError as exc:
            if not item.position:
                raise
            segment, offset = fmt.position_parts(item.position)
            raise CorruptNodeError(
                exc.message, stream=name, segment=segment, offset=offset
            ) from None


class Loss(NamedTuple):
    """Neighbouring nodes of one segment that cannot be read; a lost segment is one loss, and not a
    thousand. ``entries``: how many of their entries were in the interval, at most."""

    stream: bytes
    first: StreamID
    last: StreamID
    nodes: int
    entries: int
    position: int  # of the first node; 0: it is in no segment
    error: CorruptionError

    @property
    def segment(self) -> int | None:
        """The segment, if it is known."""
        if self.position:
            return fmt.segment_of(self.position)
        return self.error.segment

    @property
    def offset(self) -> int | None:
        """The offset in it of the first node, if it is known."""
        return fmt.position_parts(self.position)[1] if self.position else self.error.offset

    def as_error(self, advice: str = "") -> CorruptionError:
        """The error that says which entries cannot be read, and why."""
        nodes = f" in {self.nodes} nodes" if self.nodes > 1 else ""
        return type(self.error)(
            f"entries from {self.first} to {self.last}, {self.entries} at most{nodes}, cannot be "
            f"read: {self.error.message}{advice}",
            stream=self.stream,
            segment=self.segment,
            offset=self.offset,
        )


class Losses:
    """Collects the losses of one reading. ``allowed``: the reading goes on behind damage; else
    ``check`` raises the first loss, and its text ends with the ``advice``."""

    def __init__(self, *, allowed: bool = False, advice: str = "") -> None:
        self.found: list[Loss] = []
        self._allowed = allowed
        self._advice = advice

    @property
    def entries(self) -> int:
        """How many entries could not be read, at most."""
        return sum(each.entries for each in self.found)

    def add_node(
        self, section: Section, item: Item, error: CorruptionError, *, beside: bool
    ) -> None:
        """Add a node that cannot be read; ``beside``: in its list it follows the one added last."""
        name, _, start, end = section
        first, last = StreamID(*max(item.master, start)), StreamID(*min(item.last, end))
        here = Loss(name, first, last, 1, item.live, item.position, error)
        before = self.found[-1] if self.found else None
        if beside and before is not None and before.segment == here.segment:
            self.found[-1] = before._replace(
                last=max(before.last, last),
                nodes=before.nodes + 1,
                entries=before.entries + item.live,
            )
            return
        self.check()
        self.found.append(here)

    def check(self) -> None:
        """Raise the error of the first loss, unless losses are allowed."""
        if self.found and not self._allowed:
            raise self.found[0].as_error(self._advice) from None
