"""``logstore import``: entries from JSON lines or CSV."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import click

from logstore.api.open_store import open_store
from logstore.errors import InputLineError, UsageError
from logstore.options import BATCH_MAX_ROWS, ENTRY_MAX_BYTES, Sync
from logstore.tools import lines, options
from logstore.tools.loading import Counts, Load
from logstore.tools.output import Output
from logstore.tools.row_ids import TIME_FORMATS, RowIDs

# Codecs of Python that are no encodings of text files, though they turn text into bytes.
NO_TEXT = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
SAMPLE = 'id,"a"\r\n1-0,b\r\n'
FORMATS = ("jsonl", "csv")
ENDINGS = {
    "": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv",
    ".tsv": "csv",
}  # fmt: skip


def guess_format(name: str) -> str:
    """The format by the ending of a file's name; without one JSON lines.

    UsageError for an ending of which nobody knows what it stands for.
    """
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(
            f"{name} ends in {ending}, which is not supported: name a file .jsonl, .csv or .tsv, "
            "or say with --format what it is to be"
        )
    return ENDINGS[ending]


def guess_delimiter(name: str) -> str:
    """The delimiter by the name of a file: a tab if it says so, else a comma."""
    return "\t" if name.lower().endswith(".tsv") else ","


def size_of(source: BinaryIO) -> int:
    """The bytes of an input that is a file; 0 if that is not known."""
    try:
        return os.fstat(source.fileno()).st_size if source.seekable() else 0
    except OSError:
        return 0


@click.command("import")
@options.store_argument
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--stream", "name", required=True, help="The stream to add to.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Else by the file's name.")
@click.option("--id-field", help="The field with the ID; 'id' if there is one.")
@click.option("--time-field", help="The field with the time; the sequence is the rank within it.")
@click.option(
    "--time-format", default="iso", show_default=True,
    help=f"{', '.join(TIME_FORMATS)}, or a pattern of strptime; UTC if it has no zone.",
)  # fmt: skip
@click.option("--auto-id", is_flag=True, help="IDs of now; 'id' is a field like any other.")
@click.option("--encoding", default="utf-8", show_default=True, help="Of CSV.")
@click.option("--delimiter", help="Of CSV, or 'tab'; else a comma, a tab for a .tsv.")
@click.option(
    "--line-max-bytes", type=click.IntRange(1, ENTRY_MAX_BYTES), default=lines.LINE_MAX_BYTES,
    show_default=True, help="Of a line of JSON, or a record of CSV (characters there).",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(1, BATCH_MAX_ROWS), default=1000, show_default=True,
    help="Entries in a commit.",
)  # fmt: skip
@click.option("--skip-bad", is_flag=True, help="Go on after bad lines, and count them.")
@click.option("--resume", is_flag=True, help="Pass over rows up to the stream's last ID.")
@click.option("--no-create", is_flag=True, help="The store and the stream must be there.")
@options.sync_option
@options.json_option
@options.pass_output
def command(
    output: Output, path: Path, source: BinaryIO, name: str, format_: str | None,
    id_field: str | None, time_field: str | None, time_format: str, auto_id: bool, encoding: str,
    delimiter: str | None, line_max_bytes: int, batch: int, skip_bad: bool, resume: bool,
    no_create: bool, sync: Sync,
) -> None:  # fmt: skip
    """Add the rows of FILE, or of stdin, to a stream.

    JSON lines: {"id": .., "fields": {..}} as `logstore export` writes them, with "pairs" or
    "pairs_base64" in place of "fields", or a flat object of fields. CSV: a header, then rows.

    A bad line is named and stops the import; batches before it stay. Rows must ascend by ID.
    """
    if sum((id_field is not None, time_field is not None, auto_id)) > 1:
        raise click.UsageError("give one of --id-field, --time-field and --auto-id")
    ids = RowIDs(
        id_field=id_field, time_field=time_field, time_format=time_format, auto=auto_id
    )  # fmt: skip
    rows: Generator[lines.Row | InputLineError]
    named = getattr(source, "name", "")
    file = named if isinstance(named, str) else ""
    if (format_ or guess_format(file)) == "csv":
        delimiter = guess_delimiter(file) if delimiter is None else delimiter
        delimiter = "\t" if delimiter in {"tab", "\\t"} else delimiter
        check_csv(encoding, delimiter)
        rows = lines.read_csv(
            source, ids, encoding=encoding, delimiter=delimiter, line_max_bytes=line_max_bytes
        )
    else:
        rows = lines.read_json(source, ids, line_max_bytes=line_max_bytes)

    with (
        open_store(path, sync=sync, create=not no_create) as store,
        output.progress("Importing") as progress,
        closing(rows),
    ):
        total = size_of(source)

        def on_batch(counts: Counts) -> None:
            output.context = counts.as_dict()
            progress(source.tell() if total else counts.imported, total)

        load = Load(
            store.stream(name), batch, skip_bad, resume,
            on_bad=output.skipped, on_batch=on_batch,
            create=not no_create,
        )  # fmt: skip
        output.context = load.counts.as_dict()
        load.run(rows)
    output.report(load.counts.as_dict())


def check_csv(encoding: str, delimiter: str) -> None:
    """Refuse options that no CSV can have, before the store is touched."""
    try:
        known = codecs.lookup(encoding)
    except (LookupError, ValueError):  # ValueError: a name with a zero in it
        raise click.BadParameter(f"no such encoding: {encoding}") from None
    if known.name in NO_TEXT or not _reads_csv(known.name):
        raise click.BadParameter(f"{encoding} is no encoding of text files: give one as utf-8")
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise click.BadParameter(f"the delimiter is one character, not {delimiter!r}")


def _reads_csv(encoding: str) -> bool:
    """Whether a codec gives back a piece of CSV that it encoded."""
    try:
        data = SAMPLE.encode(encoding)
        text = io.TextIOWrapper(
            io.BytesIO(data), encoding=encoding, errors="surrogateescape", newline=""
        )
        return text.read() == SAMPLE
    except (LookupError, ValueError):  # of bytes to bytes, or without the characters
        return False
