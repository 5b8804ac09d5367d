"""``logstore redis export``: streams to an RDB file, or to a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.api.open_store import open_store
from logstore.tools import options, redis_options
from logstore.tools.output import Output
from logstore.tools.redis_options import MIB, is_server

if TYPE_CHECKING:
    from logstore.api.dump import Peer


@click.command("export")
@options.store_argument
@click.argument("target", metavar="TARGET")
@redis_options.shared
@click.option("--peer", type=click.Choice(["redis", "valkey"]),
              help="Who is to load the file; matters for a few lengths of values.")  # fmt: skip
@options.json_option
@options.pass_output
def command(
    output: Output, path: Path, target: str, patterns: tuple[str, ...], replace: bool, skip: bool,
    prefix: str, password_file: Path | None, dump_max: int, peer: Peer | None,
) -> None:  # fmt: skip
    """Write the streams of STORE to an RDB file, or bring them to a server.

    TARGET is a file, which takes its name when it is whole, or redis://[user:password@]host:port/db
    and its like. A stream that a server has already with the same last ID, length and entries added
    is passed over, so an export that was killed is begun again and goes on.
    """
    from logstore.transfer.report import Report

    wanted = redis_options.wanted(patterns, prefix, replace=replace, skip=skip)
    if skip and not is_server(target):
        raise click.UsageError("--skip is for a server; a file is written whole")
    report = Report()
    try:
        with open_store(path, create=False) as store, output.progress("Exporting") as progress:
            if is_server(target):
                from logstore.transfer.serverexport import export_server

                with redis_options.server(target, password_file) as server:
                    export_server(
                        store, server, wanted, dump_max_bytes=dump_max * MIB, report=report,
                        progress=progress,
                    )  # fmt: skip
            else:
                from logstore.transfer.fileexport import export_file

                export_file(
                    store, Path(target), wanted, peer=peer, report=report, progress=progress
                )
    except BaseException:
        output.context = report.as_dict()
        raise
    output.report(report.as_dict())
