"""CSV in blocks of many records, which pyarrow splits into cells where the module csv would split
them in the same way.

The input comes in pieces of whole records: a piece ends with a line behind which quotes are even.
That is so if each quote belongs to a cell that is quoted as a whole; where one does not, the rest
of the input goes row by row, as ``text_lines`` reads it. So does a piece that pyarrow refuses, or
that is too small to be worth it.

Invariants: a block has the records that ``text_lines`` finds in the same bytes, and can give them
row by row: then what is bad is named. Memory holds a few pieces. pyarrow is loaded with the first
large piece.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import struct
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

from logstore.errors import InputLineError, InvalidIDError
from logstore.tools.interchange import text_lines
from logstore.tools.interchange.text_rows import Block, ImportRow, RowIDs, id_place
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.codec import RowBatch
    from logstore.schema.stream_schema import Schema
    from logstore.tools.interchange.text_lines import Found, HeaderNames

PIECE_BYTES = 1 << 20
SMALL_BYTES = 32 << 10  # a piece of less goes row by row
HELD_BYTES_MAX = 4 * PIECE_BYTES  # without the end of a record
RECORD_BYTES_MAX = HELD_BYTES_MAX + PIECE_BYTES
_ID = r"^(?P<ms>0|[1-9][0-9]{0,18})-(?P<seq>0|[1-9][0-9]{0,18})$"

Numbers: TypeAlias = tuple[list[int], list[int]]


class CellBlock(NamedTuple):
    """Some records: a column of text for each of the header."""

    batch: Any
    header: list[str]
    id_at: int  # the column with the ID; -1: there is none
    row_by_row: Callable[[], Found]

    def numbers(self) -> Numbers:
        """Milliseconds and sequences of the IDs. InvalidIDError: not all have the usual form."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.batch.column(self.id_at)
        parts = pc.extract_regex(column, _ID)
        if parts.null_count:
            raise InvalidIDError("an ID is in another form")
        ms, seq = (
            pc.struct_field(parts, [place]).cast(pa.uint64()).to_pylist() for place in (0, 1)
        )
        return ms, seq

    def ready(self, schema: Schema | None, commas: frozenset[bytes] = frozenset()) -> RowBatch:
        """The rows as they are stored; ``commas``: the fields whose numbers have a decimal comma.
        UsageError if one cannot be."""
        from logstore.codec import codec
        from logstore.tools.interchange import decimal_commas

        names: list[bytes] = []
        columns: list[Any] = []
        for place, name in enumerate(self.header):
            if place != self.id_at:
                names.append(name.encode())
                column = self.batch.column(place)
                if names[-1] in commas:
                    column = decimal_commas.columns_with_point(column)
                columns.append(column if schema is None else _typed(column, names[-1], schema))
        if schema is not None:
            for field, default in schema.filled(names):
                names.append(field)
                columns.append([default] * self.batch.num_rows)
        return codec().columns(names, columns)


def _typed(column: Any, name: bytes, schema: Schema) -> Any:
    """A column of cells as its column of the schema has them; an empty cell is null where it can
    be, or is no value."""
    from logstore.scan import column_texts

    of = schema.column(name)
    if of is None:
        schema.check_field(name)
        return column.fill_null("")
    if not of.nullable and of.type.takes_empty:
        column = column.fill_null("")
    return column_texts.typed_values(column, of, 0)


def sample_columns(
    sample: bytes, ids: RowIDs, delimiter: str, names: HeaderNames
) -> list[tuple[str, Any]] | None:
    """The names and cells of the columns at the beginning of an input; None if they are told row
    by row."""
    split = _Splitting(delimiter, empty_is_null=True)
    piece = sample[: _end_of_records(sample)].removeprefix(codecs.BOM_UTF8)
    if len(piece) < SMALL_BYTES or not split.is_sound(piece):
        return None
    head = _head(piece, delimiter, names)
    if head is None:
        return None
    header, piece, _ = head
    id_at = id_place(header, ids)
    batch = None if id_at is None or not piece else split.batch(piece, len(header))
    if batch is None:
        return None
    places = (place for place in range(len(header)) if place != id_at)
    return [(header[place], batch.column(place)) for place in places]


class _Rest:
    """What was read already, and what is behind it."""

    def __init__(self, held: bytes, source: Any) -> None:
        self._held, self._source = io.BytesIO(held), source

    def read1(self, size: int) -> bytes:
        """Some bytes; none at the end."""
        data: bytes = self._held.read(size) or self._source.read1(size)
        return data


class _Pieces:
    """The pieces of an input, and whether each is sound. ``rest`` is what was read, and is in none
    of them."""

    def __init__(self, source: Any, split: _Splitting) -> None:
        self._source, self._split = source, split
        self.rest = b""
        self._mark = codecs.BOM_UTF8  # at the beginning alone

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        while data := self._source.read1(PIECE_BYTES):
            data = self.rest + data
            end = data.rfind(b"\n") + 1  # most often a record ends there, too
            is_sound = self._is_sound(data[:end])
            if not is_sound:
                end = _end_of_records(data)
                is_sound = self._is_sound(data[:end])
            self.rest = data[end:]
            if end:
                self._mark = b""
                yield data[:end], is_sound
            elif len(data) > HELD_BYTES_MAX:
                return
        data, self.rest = self.rest, b""
        if data:
            yield data, self._is_sound(data)

    def _is_sound(self, piece: bytes) -> bool:
        return self._split.is_sound(piece.removeprefix(self._mark))

    def from_here(self, piece: bytes) -> BinaryIO:
        """A piece and all that is behind it."""
        return cast("BinaryIO", _Rest(piece + self.rest, self._source))


def _end_of_records(data: bytes) -> int:
    """Where the last record ends that is there whole; 0: none is."""
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return end


def may_split(encoding: str, delimiter: str) -> bool:
    """Whether pyarrow is there, and splits text in this encoding, with this delimiter."""
    is_plain = text_lines.is_plain_encoding(encoding) and delimiter.isascii()
    return is_plain and find_spec("pyarrow") is not None


def read(
    source: BinaryIO,
    ids: RowIDs,
    *,
    delimiter: str,
    line_max_bytes: int,
    names: HeaderNames,
    empty_is_null: bool,
) -> Generator[ImportRow | InputLineError | Block | CellBlock]:
    """The rows of CSV in UTF-8, as ``text_lines.read_csv`` gives them, and blocks of cells.

    Args:
        source: the bytes.
        ids: where IDs come from.
        delimiter: of cells, a character of ASCII.
        line_max_bytes: of a record; ``RECORD_BYTES_MAX`` at least.
        names: what the first record says.
        empty_is_null: an empty cell of a block is null.
    """
    rows = partial(text_lines.read_csv, ids=ids, delimiter=delimiter, line_max_bytes=line_max_bytes)
    split = _Splitting(delimiter, empty_is_null=empty_is_null)
    pieces = _Pieces(source, split)
    header: list[str] = []
    number = 0
    for piece, is_sound in pieces:
        begun = number
        if not is_sound:
            known = partial(rows, names=names, header=header, lines_before=begun)
            yield from known(source=pieces.from_here(piece))
            return
        number += piece.count(b"\n")
        if not header:
            head = _head(piece, delimiter, names)
            if head is None:
                yield from rows(source=pieces.from_here(piece), names=names, lines_before=begun)
                return
            header, records, lines = head
            begun += lines
        else:
            records = piece
        one_by_one = partial(
            rows, io.BytesIO(records), names=names, header=header, lines_before=begun
        )
        id_at = id_place(header, ids)
        batch = None
        if id_at is not None and len(records) >= SMALL_BYTES:
            batch = split.batch(records, len(header))
        if batch is None:
            yield from one_by_one()
        else:
            assert id_at is not None
            yield CellBlock(batch, header, id_at, one_by_one)
    if pieces.rest:
        known = partial(rows, names=names, header=header, lines_before=number)
        yield from known(source=pieces.from_here(b""))


def _head(piece: bytes, delimiter: str, names: HeaderNames) -> tuple[list[str], bytes, int] | None:
    """The header, what is behind it, and the number of lines before that; None: there is none, or
    a bad one."""
    text = piece.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    stream = io.StringIO(text, newline="")
    reader: Any = csv.reader(stream, delimiter=delimiter, strict=True)
    at, line = 0, 0
    try:
        for cells in reader:
            if cells:
                break
            at, line = stream.tell(), reader.line_num
        else:
            return None
    except csv.Error:
        return None
    header, is_header = names(cells)
    if is_header:
        at, line = stream.tell(), reader.line_num
    return header, text[at:].encode("utf-8", "surrogateescape"), line


class _Splitting:
    """How pieces are split into cells."""

    def __init__(self, delimiter: str, *, empty_is_null: bool) -> None:
        self._delimiter = delimiter
        self._nulls = empty_is_null
        mark = re.escape(delimiter)
        quoted = rf'"(?:[^"]|"")*"(?:[{mark}\n]|\r\n|\z)'
        self._cells = rf'\A(?:{quoted}|[^"{mark}\n]*(?:[{mark}\n]|\z))*\z'
        self._few_cells = re.compile(self._cells.replace(r"\z", r"\Z").encode())

    def is_sound(self, piece: bytes) -> bool:
        """Whether records end where lines do behind which quotes are even, and with a newline."""
        if b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n"):
            return False
        if b'"' not in piece:
            return True
        if len(piece) < SMALL_BYTES:
            return self._few_cells.match(piece) is not None

        import pyarrow as pa
        import pyarrow.compute as pc

        # of its buffers: pa.array would load pandas where that is installed
        ends = pa.py_buffer(struct.pack("=2i", 0, len(piece)))
        whole = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(piece)])
        found: bool = pc.match_substring_regex(whole, self._cells)[0].as_py()
        return found

    def batch(self, piece: bytes, width: int) -> Any:
        """The records of a sound piece as columns of text; None if pyarrow refuses one, or there
        is none."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names = [str(place) for place in range(width)]
        if piece.startswith(codecs.BOM_UTF8):  # of a cell: at the beginning pyarrow leaves it out
            piece = b"\n" + piece
        has_quotes = b'"' in piece
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(piece),
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(piece) + 1, column_names=names
                ),
                arrow_csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char='"' if has_quotes else False,
                    newlines_in_values=has_quotes,
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=self._nulls,
                ),
            )
        except pa.ArrowException:
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None
