"""``logstore export --to parquet``: the options, the progress and what is told of it.

Invariant: what fails tells how many entries are in whole files, and that the export can go on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from logstore.loading import needing
from logstore.scan import schema_text
from logstore.tools import options
from logstore.tools.output import Output
from logstore.transfer import parquet_export
from logstore.transfer.parquet_export import ParquetReport

ENDING = ".parquet"


def export(
    output: Output,
    path: Path,
    names: tuple[str, ...],
    *,
    schema: str | None,
    start: str,
    end: str,
    resume: bool,
    **_more: Any,
) -> None:
    """Write streams to a folder, or one stream to a file."""
    if not names:
        raise click.UsageError("name a folder, or a STREAM and a file that ends in .parquet")
    target, raw = Path(names[-1]), [os.fsencode(name) for name in names[:-1]]
    columns = None
    if schema is not None:
        columns = needing("arrow", lambda: schema_text.columns(schema))
    interval: dict[str, Any] = {"schema": columns, "start": start, "end": end}
    one = target.suffix.lower() == ENDING
    if one and (len(raw) != 1 or resume):
        raise click.UsageError(
            "a file that ends in .parquet is of one STREAM, and not resumed: name a folder"
        )
    if str(target) == "-" or (target.exists() and not one and not target.is_dir()):
        raise click.UsageError(f"{target} is no folder, and does not end in .parquet")
    with options.reading(path) as store, output.progress("Exporting") as progress:
        if one:
            options.existing(store, names[0])
            found = parquet_export.export_parquet_file(
                store, target, raw[0], progress=progress, **interval
            )
            output.report({"exported": found.entries, "file": str(target), **_null(found)})
            return
        report = ParquetReport()
        try:
            parquet_export.export_parquet(
                store,
                target,
                raw or None,
                resume=resume,
                report=report,
                progress=progress,
                **interval,
            )
        finally:
            if report.files:
                output.context = {"exported": report.entries, "the rest": "--resume"}
    told = {"exported": report.entries, "folder": str(target)}
    output.report(told | {"streams": report.streams, "files": report.files} | _null(report))


def _null(report: ParquetReport) -> dict[str, Any]:
    """The values that became null, if there are any."""
    return {"null": dict(report.malformed)} if report.malformed else {}
