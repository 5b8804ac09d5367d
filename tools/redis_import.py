"""``logstore redis import``: streams from an RDB file, a payload, or a server; ``--follow`` it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api.open_store import open_store
from logstore.api.store import Store
from logstore.options import Sync
from logstore.tools import options, redis_options
from logstore.tools.output import EXIT_LEFT_OUT, Output, Progress
from logstore.tools.redis_options import MIB, is_server

if TYPE_CHECKING:
    from logstore.transfer.following import Deletes, Follow, Trim
    from logstore.transfer.report import Report
    from logstore.transfer.selection import Wanted


@click.command("import")
@options.store_argument
@click.argument("source", metavar="SOURCE")
@redis_options.shared
@click.option("--name", help="SOURCE is a file with a DUMP payload: the stream's name.")
@click.option("--db", type=click.IntRange(0), default=0, show_default=True,
              help="Of an RDB file: the database.")  # fmt: skip
@click.option("--follow", "follows", is_flag=True, help="Go on with what is added there.")
@click.option("--trim", type=click.Choice(["none", "acked", "all"]), default="none",
              show_default=True,
              help="With --follow: trim there what is durable here.")  # fmt: skip
@click.option("--deletes", type=click.Choice(["keep", "apply"]), default="keep", show_default=True,
              help="With --follow: what is deleted there.")  # fmt: skip
@click.option("--every", "look_s", type=click.FloatRange(0.05), default=5.0, show_default=True,
              help="With --follow: seconds between looks for new streams and deletes.")  # fmt: skip
@options.sync_option
@options.json_option
@options.pass_output
def command(
    output: Output, path: Path, source: str, patterns: tuple[str, ...], replace: bool, skip: bool,
    prefix: str, password_file: Path | None, dump_max: int, name: str | None, db: int,
    follows: bool, trim: Trim, deletes: Deletes, look_s: float, sync: Sync,
) -> None:  # fmt: skip
    """Import streams into STORE: nodes as they are, groups and pending entries included.

    SOURCE is an RDB file, a file with a DUMP payload, or redis://[user:password@]host:port/db,
    rediss://.. (TLS), unix://path. A stream that is there already with the same last ID, length
    and entries added is passed over, so an import that was killed is begun again and goes on.

    A stream that cannot be taken, as one with a name over 64 KiB, is left out and named; the exit
    code is 3 then.

    --follow runs until it is interrupted: it adds what is added there, with its IDs.
    """
    from logstore.transfer.following import Follow
    from logstore.transfer.report import Report

    wanted = redis_options.wanted(patterns, prefix, replace=replace, skip=skip)
    _check(source, name, follows, trim, deletes, replace)
    report = Report()
    try:
        with open_store(path, sync=sync) as store, output.progress("Importing") as progress:
            if follows:
                how = Follow(trim, deletes, look_s=look_s, dump_max_bytes=dump_max * MIB)
                _follow(store, source, password_file, wanted, how, report, progress)
            else:
                from_where = (source, password_file, name, db, dump_max * MIB)
                _import(store, from_where, wanted, report, progress)
    except BaseException:
        output.context = report.as_dict()
        raise
    output.report(report.as_dict())
    if report.left_out:
        output.exit_code = EXIT_LEFT_OUT


def _check(
    source: str, name: str | None, follows: bool, trim: str, deletes: str, replace: bool
) -> None:
    if follows and not is_server(source):
        raise click.UsageError("--follow needs a server, as redis://host:port/db")
    if name is not None and is_server(source):
        raise click.UsageError("--name is for a file with a DUMP payload; --stream chooses")
    if follows and replace:
        raise click.UsageError("--follow goes on with what is there: it replaces nothing")
    if not follows and (trim != "none" or deletes != "keep"):
        raise click.UsageError("--trim and --deletes need --follow")


def _import(
    store: Store[bytes], source: tuple[str, Path | None, str | None, int, int], wanted: Wanted,
    report: Report, progress: Progress,
) -> None:  # fmt: skip
    where, password_file, name, db, dump_max_bytes = source
    if is_server(where):
        from logstore.transfer.serverimport import import_server

        with redis_options.server(where, password_file) as server:
            import_server(
                store, server, wanted, dump_max_bytes=dump_max_bytes, report=report,
                progress=progress,
            )  # fmt: skip
    else:
        from logstore.transfer.fileimport import import_file

        raw = None if name is None else name.encode("utf-8", "surrogateescape")
        import_file(
            store, Path(where), wanted, name=raw, database=db, report=report, progress=progress
        )


def _follow(
    store: Store[bytes], source: str, password_file: Path | None, wanted: Wanted, how: Follow,
    report: Report, progress: Progress,
) -> None:  # fmt: skip
    from logstore.transfer.following import follow

    stop = threading.Event()
    with redis_options.server(source, password_file) as server, _ended_by(stop.set):
        follow(store, server, wanted, how, stop=stop, report=report, progress=progress)


@contextmanager
def _ended_by(end: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``end`` in the block."""

    def handle(*_: Any) -> None:
        end()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
