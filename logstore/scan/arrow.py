"""Nodes to Arrow record batches of bounded size; the scan of a stream.

Invariants: a batch has at most ``batch_rows`` rows and, but for its last node, at most BATCH_BYTES;
rows come in the order of IDs; columns come in the order asked for; a batch without columns still
has its rows. No index is needed to turn nodes into batches: what a Spark executor imports from here
reaches neither the engine nor LMDB.

A name that is none of the standard columns is a field of the entries: a column of text, null where
an entry has no such field, the last value where it has several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.codec import ARROW_COLUMNS, ID, ArrowBuilder, Section, codec
from logstore.errors import OptionError
from logstore.ids import U64_MAX
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.codec.arrow_builder import NameGuard

BATCH_BYTES = 8 << 20
BATCH_ROWS = 65536
BATCH_ROWS_MAX = 16_777_216


class Source(NamedTuple):
    """What a column is gathered from; ``standard``: no field of this name, but one of the codec's
    columns; ``binary``: values stay bytes."""

    name: str
    standard: bool
    binary: bool = False


class Gather:
    """Nodes gathered into record batches; ``binary`` names columns whose values stay bytes;
    ``guard`` refuses fields that would be taken for columns."""

    def __init__(
        self,
        columns: Sequence[str | Source] | None = None,
        batch_rows: int = BATCH_ROWS,
        *,
        binary: Collection[str] = (),
        guard: NameGuard | None = None,
    ) -> None:
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise OptionError(f"batch_rows must be 1 to {BATCH_ROWS_MAX}: {batch_rows}")
        self._sources = [
            each
            if isinstance(each, Source)
            else Source(each, each in ARROW_COLUMNS, each in binary)
            for each in (ARROW_COLUMNS if columns is None else columns)
        ]
        # what is asked for twice is one column; a builder has it as text or as bytes, not as both
        first: dict[tuple[str, bool], Source] = {}
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
        """One that only counts, whatever the number of rows; it needs no pyarrow."""
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
        if len(self._builders) > 1:  # none: a node goes to all of them or to none
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

        if not self._sources:  # the one form that keeps the number of rows of no columns
            return self._builders[0].finish()
        found: dict[Source, tuple[pa.Field, pa.Array]] = {}
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
    """A builder, and what its columns are in order."""

    def __init__(self, sources: Iterable[Source], guard: NameGuard | None) -> None:
        standard = [each for each in sources if each.standard]
        fields = [each for each in sources if not each.standard]
        self.order = standard + fields
        self.builder: ArrowBuilder = codec().ArrowBuilder(
            [each.name for each in standard],
            [each.name for each in fields],
            [each.binary for each in self.order],
            guard,
        )
