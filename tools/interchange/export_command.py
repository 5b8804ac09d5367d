"""``logstore export``: entries as JSON lines, which import reads byte for byte, as CSV or as
Parquet.

Invariants: a file takes its name when it is whole; an option of another format is refused. An error
while Parquet is written comes with how many entries are in whole files, and that the export can be
resumed.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import click

from logstore.errors import UsageError
from logstore.ids import StreamID
from logstore.loading import needing
from logstore.tools import command_options as options
from logstore.tools.command_output import Output
from logstore.tools.entry_commands import asked, wanted, where_option
from logstore.tools.interchange.file_formats import (
    TEXTS,
    guess_delimiter,
    guess_format,
    is_utf8,
    packing,
)
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.api.entry import TextRows
    from logstore.api.values import ValueCodec
    from logstore.scan.scan_records import TextRow
    from logstore.transfer.parquet_export import ParquetReport

    Rows: TypeAlias = TextRows | list[TextRow]
    Asked: TypeAlias = dict[bytes, bytes] | str | None

STDOUT = Path("-")
_names = itemgetter(slice(None, None, 2))


class CsvWriter:
    """Entries as rows under a header of the ID and the fields; what does not fit is refused, and
    the rows before it are written."""

    def __init__(self, fields: list[str], id_field: str, delimiter: str = ",") -> None:
        if id_field in fields:
            raise UsageError(f"a field is named {id_field!r}: name the column of IDs by --id-field")
        self.fields = fields
        self._known = set(fields)
        self._header = [id_field, *fields]
        self._delimiter = delimiter

    def header(self) -> bytes:
        """Write the header."""
        return self._written([self._header])

    def __call__(self, rows: Rows) -> Iterator[bytes]:
        try:
            together = self._written(self._cells(rows))
        except (UsageError, UnicodeEncodeError):
            for row in rows:
                self._check_utf8(*row)
                yield self._written(self._cells([row]))
        else:
            yield together

    def _cells(self, rows: Iterable[TextRow]) -> Iterator[Sequence[str]]:
        """The cells of each row. Most have the fields of the row before, so where these stand is
        looked up once: the ID is at 0, behind all is an empty cell for those that are not there."""
        names: tuple[str, ...] | None = None
        pick: Callable[[Sequence[str]], Sequence[str]] = tuple
        for (ms, seq), flat in rows:
            if flat[::2] != names:
                names = flat[::2]
                self._check_names((ms, seq), names)
                at = {name: 2 * place + 2 for place, name in enumerate(names)}
                pick = itemgetter(0, *(at.get(name, -1) for name in self.fields))
            yield pick((f"{ms}-{seq}", *flat, ""))

    def _check_names(self, id: tuple[int, int], names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            raise UsageError(f"{StreamID(*id)} repeats a field: use --format jsonl")
        more = [name for name in names if name not in self._known]
        if more:
            raise UsageError(
                f"{StreamID(*id)} has the field {more[0]!r}, which --fields does not name"
            )

    @staticmethod
    def _check_utf8(id: tuple[int, int], flat: Sequence[str]) -> None:
        if not is_utf8(flat):
            raise UsageError(f"{StreamID(*id)} is no UTF-8: use --format jsonl")

    def _written(self, found: Iterable[Sequence[str]]) -> bytes:
        """Rows; where no cell needs quotes, which is seen of all of them at once, they are as they
        stand: the module csv takes seven times as long for these."""
        rows = list(found)
        joined = "\n".join([*map(self._delimiter.join, rows), ""])
        bounds = len(rows) * (len(self._header) - 1)
        if (
            not ('"' in joined or "\r" in joined)
            and joined.count(self._delimiter) == bounds
            and joined.count("\n") == len(rows)
        ):
            return joined.encode()
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


def field_names(batches: Iterable[Rows]) -> list[str]:
    """The names of all fields, in the order in which they first occur."""
    found: dict[str, None] = {}
    for rows in batches:
        of_entries = dict.fromkeys(map(_names, map(itemgetter(1), rows)))
        found.update(dict.fromkeys(chain.from_iterable(of_entries)))
    if not is_utf8(found):
        raise UsageError("a field name is no UTF-8: use --format jsonl")
    return list(found)


@contextmanager
def opened(output: Output, target: Path) -> Iterator[BinaryIO]:
    """Stdout for "-"; else a file that takes its name when it is whole."""
    if target == STDOUT:
        yield output.stream
        return
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"{target} cannot be a file: name one in a directory that is there")
    if target.exists() and not target.is_file():  # a pipe, a device
        with target.open("wb") as file:
            yield file
        return
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


FORMATS = (*TEXTS, "parquet")
INSTEAD = "name it .parquet, .jsonl or .csv, or write what a scan gives by pyarrow"
# Options of one format only; the command refuses them with another one.
ONLY_OF = {"fields": "csv", "id_field": "csv", "schema": "parquet", "resume": "parquet"}
ENDING = ".parquet"


class ExportOptions(NamedTuple):
    """The options of an export, as they were typed."""

    start: str
    end: str
    where: tuple[str, ...]
    fields: str | None
    id_field: str | None
    schema: str | None
    resume: bool


@options.command("export")
@click.argument(
    "names", metavar="[STREAM].. [FILE]", nargs=-1, shell_complete=options.complete_streams
)
@click.option(
    "--to", "--format", "format_", type=click.Choice(FORMATS), help="Else by the file's name."
)
@click.option("--start", default="-", show_default=True, help="The first ID.")
@click.option("--end", default="+", show_default=True, help="The last ID.")
@where_option
@click.option("--fields", help="Of CSV: the columns, split by commas; else found by a first pass.")
@click.option("--id-field", help="Of CSV: the column of IDs.  [default: id]")
@click.option("--schema", help="Of Parquet: columns and types, as 'temp double, hum long'.")
@click.option("--resume", is_flag=True, help="Of a Parquet folder: go on behind what it has.")
@options.gathered("chosen", ExportOptions)
def export_(
    output: Output, path: Path, names: tuple[str, ...], format_: str | None, chosen: ExportOptions
) -> None:
    """Write the entries of STREAM to FILE, or to stdout.

    JSON lines keep every byte; of a stream with a schema or a codec, numbers are numbers, and JSON
    is nested.
    CSV takes text without repeated fields; a field that an entry lacks becomes an empty cell; a
    file named .tsv has tabs. Behind these, .gz and .zst compress. FILE appears, and
    takes the place of an older one, when it is whole.

    A FILE named .parquet has the columns id, ts and those of --schema, else those of the stream's
    schema before id and ts, else all fields as a map.
    With --to parquet, FILE is a folder, and there may be several STREAMs and patterns, or none for
    all of them: there will be a folder for each stream and day, with files that appear when they
    are whole; --resume goes on behind them, also after a kill. Needs the extra arrow.
    """
    where = wanted(chosen.where)
    file = names[-1] if len(names) > 1 else None
    kind = format_ or ("jsonl" if file is None else guess_format(file))
    if kind not in FORMATS:
        raise click.UsageError(f"{file} cannot be written, only imported: {INSTEAD}")
    for name, only in ONLY_OF.items():
        if getattr(chosen, name) and kind != only:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for {kind}")
    if kind == "parquet":
        _export_tables(output, path, names, chosen, where)
        return
    if not names or names[2:]:
        raise click.UsageError("give one STREAM, and FILE or nothing for stdout")
    name, *rest = names
    target = Path(*rest) if rest else STDOUT
    count = _export_text(output, path, name, target, chosen, where, as_csv=kind == "csv")
    if target != STDOUT:
        output.report({"exported": count, "file": str(target)})


def _export_text(
    output: Output,
    path: Path,
    name: str,
    target: Path,
    chosen: ExportOptions,
    where: Asked,
    *,
    as_csv: bool,
) -> int:
    """JSON lines or CSV; how many entries."""
    from logstore.api import arguments, coded, entry_reads, values
    from logstore.api.opening import opened_of
    from logstore.scan import scan_records

    with options.reading(path) as store, output.progress("Exporting") as progress:
        stream = options.with_codec(store, name)
        match = coded.matching_of(stream, asked(stream, where))
        low, high = arguments.interval(chosen.start, chosen.end)
        high = min(high, stream.last_id)  # later entries are not exported

        def batches() -> Iterator[Rows]:
            if low > high:  # nothing was ever added there
                return iter(())
            rows = entry_reads.text_rows(opened_of(stream), stream.name, low, high, match)
            return rows if codec is None or not as_csv else map(partial(_read_by, codec), rows)

        writer, schema = None, stream.schema
        codec = coded.kept_codec(opened_of(stream), stream.name)
        json_lines: Callable[[Rows], bytes] = scan_records.json_lines
        if as_csv:
            names = chosen.fields.split(",") if chosen.fields else field_names(batches())
            if schema is not None and not chosen.fields:
                names = [*dict.fromkeys([*(each.name for each in schema.columns), *names])]
            writer = CsvWriter(names, chosen.id_field or "id", guess_delimiter(target.name))
        elif codec is not None:
            json_lines = scan_records.CodedLines(partial(values.json_text, codec))
        elif schema is not None:
            json_lines = scan_records.TypedLines(schema)
        count, about = 0, len(stream)
        with opened(output, target) as file, packing(file, target.name) as packed:
            if writer is not None:
                packed.write(writer.header())
            for rows in batches():
                if writer is None:
                    packed.write(json_lines(rows))
                else:
                    packed.writelines(writer(rows))
                count += len(rows)
                progress(count, max(count, about))
        return count


def _read_by(codec: ValueCodec, rows: TextRows) -> list[TextRow]:
    """The same rows, with the values of a codec as text. UsageError for what it did not store."""
    from logstore.scan.conversion import value_text

    found: list[TextRow] = []
    for id, flat in rows:
        cells = list(flat)
        for at in range(1, len(cells), 2):
            try:
                value = codec.decode(cells[at].encode("utf-8", "surrogateescape"))
            except Exception:  # noqa: BLE001  whatever a codec raises
                raise UsageError(
                    f"{StreamID(*id)} has a value of {cells[at - 1]!r} that the codec "
                    f"{codec.name!r} cannot read: use --format jsonl"
                ) from None
            cells[at] = value_text(value) or ""
        found.append((id, tuple(cells)))
    return found


def _export_tables(
    output: Output, path: Path, names: tuple[str, ...], chosen: ExportOptions, where: Asked
) -> None:
    """Write streams to a folder, or one stream to a file."""
    from logstore.scan import scan_columns
    from logstore.transfer import parquet_export

    if not names:
        raise click.UsageError("name a folder, or a STREAM and a file that ends in .parquet")
    target, raw = Path(names[-1]), [os.fsencode(name) for name in names[:-1]]
    columns, schema = None, chosen.schema
    if schema is not None:
        columns = needing("arrow", lambda: scan_columns.parse_columns(schema))
    one = target.suffix.lower() == ENDING
    if one and (len(raw) != 1 or chosen.resume):
        raise click.UsageError(
            "a file that ends in .parquet is of one STREAM, and not resumed: name a folder"
        )
    if str(target) == "-" or (target.exists() and not one and not target.is_dir()):
        raise click.UsageError(f"{target} is no folder, and does not end in .parquet")
    with options.reading(path) as store, output.progress("Exporting") as progress:
        if isinstance(where, dict):
            raise click.BadParameter(
                "to Parquet give a condition, such as \"room = 'a'\"", param_hint="--where"
            )
        how: dict[str, Any] = {"schema": columns, "start": chosen.start, "end": chosen.end}
        how["where"] = where
        how["progress"] = progress
        if one:
            options.existing(store, names[0])
            report = parquet_export.export_parquet_file(store, target, raw[0], **how)
            output.report({"exported": report.entries, "file": str(target), **_null(report)})
            return
        report = how["report"] = parquet_export.ParquetReport()
        try:
            parquet_export.export_parquet(store, target, raw or None, resume=chosen.resume, **how)
        finally:
            if report.files:
                output.context = {"exported": report.entries, "the rest": "--resume"}
    values = {"exported": report.entries, "folder": str(target)}
    output.report(values | {"streams": report.streams, "files": report.files} | _null(report))


def _null(report: ParquetReport) -> dict[str, Any]:
    """The values that became null, if there are any."""
    return {"null": dict(report.malformed)} if report.malformed else {}
