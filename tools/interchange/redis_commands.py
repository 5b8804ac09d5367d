"""``logstore redis import`` and ``export``: streams from and to RDB files, payloads, servers.

Invariants: a password is read from a file or stands in the address; no message tells it; what was
interrupted is begun again and goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.errors import OptionError
from logstore.options import Sync
from logstore.tools import command_options as options
from logstore.tools.command_options import F
from logstore.tools.command_output import EXIT_LEFT_OUT, Output, Progress
from logstore.uri_path import shown

if TYPE_CHECKING:
    from logstore.api.dump import Peer
    from logstore.api.store import Store
    from logstore.transfer.following import Deletes, Follow, Trim
    from logstore.transfer.job import Policy, Report, Wanted
    from logstore.transfer.server import Server


SCHEMES = ("redis://", "rediss://", "unix://")
MIB = 1 << 20


def shared(command: F) -> F:
    """The options that both commands have."""
    for option in (
        click.option(
            "--dump-max",
            type=click.IntRange(0, 512),
            default=128,
            show_default=True,
            help="MiB of a stream that go as one payload; larger ones go by pages.",
        ),
        click.option(
            "--password-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file with the server's password.",
        ),
        click.option("--prefix", default="", help="Stands before every name on the other side."),
        options.yes_option,
        click.option("--skip", is_flag=True, help="Keep what has the name there already."),
        click.option("--replace", is_flag=True, help="Replace what has the name there already."),
        click.option(
            "--stream",
            "patterns",
            multiple=True,
            metavar="PATTERN",
            help="Only these: * ? [a-c], as of KEYS; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def is_server(target: str) -> bool:
    """Whether an argument is the address of a server, not a path."""
    return target.startswith(SCHEMES)


def wanted_of(patterns: tuple[str, ...], prefix: str, *, replace: bool, skip: bool) -> Wanted:
    """What is to be carried."""
    from logstore.transfer.job import Wanted

    if replace and skip:
        raise click.UsageError("give one of --replace and --skip")
    policy: Policy = "replace" if replace else "skip" if skip else "refuse"
    return Wanted([_bytes(each) for each in patterns], _bytes(prefix), policy)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def server_at(address: str, password_file: Path | None) -> Server:
    """The server at an address."""
    from logstore.transfer.server import Server

    password = None
    if password_file is not None:
        password = password_file.read_text().strip("\r\n")
        if not password:
            raise OptionError(f"{password_file} holds no password")
    return Server(address, password=password)


@options.command("import")
@click.argument("source", metavar="SOURCE")
@shared
@click.option("--name", help="SOURCE is a file with a DUMP payload: the stream's name.")
@click.option(
    "--db",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of an RDB file: the database.",
)
@click.option("--follow", "follows", is_flag=True, help="Go on with what is added there.")
@click.option(
    "--trim",
    type=click.Choice(["none", "acked", "all"]),
    default="none",
    show_default=True,
    help="With --follow: trim there what is durable here.",
)
@click.option(
    "--deletes",
    type=click.Choice(["keep", "apply"]),
    default="keep",
    show_default=True,
    help="With --follow: what is deleted there.",
)
@click.option(
    "--every",
    "look_s",
    type=click.FloatRange(0.05),
    default=5.0,
    show_default=True,
    help="With --follow: seconds between looks for new streams and deletes.",
)
@options.sync_option
def import_streams(
    output: Output,
    path: Path,
    source: str,
    patterns: tuple[str, ...],
    replace: bool,
    skip: bool,
    prefix: str,
    password_file: Path | None,
    dump_max: int,
    yes: bool,
    name: str | None,
    db: int,
    follows: bool,
    trim: Trim,
    deletes: Deletes,
    look_s: float,
    sync: Sync,
) -> None:
    """Import streams into STORE: nodes as they are, groups and pending entries included.

    SOURCE is an RDB file, a file with a DUMP payload, or redis://[user:password@]host:port/db,
    rediss://.. (TLS), unix://path. A stream that is there already with the same last ID, length
    and entries added is passed over, so an import that was killed is begun again and goes on.

    A stream that cannot be taken, as one with a name over 64 KiB, is left out and named; the exit
    code is 3 then.

    --follow runs until it is interrupted: it adds what is added there, with its IDs.
    """
    from logstore.transfer.following import Follow
    from logstore.transfer.job import Report

    wanted = wanted_of(patterns, prefix, replace=replace, skip=skip)
    _check(source, name, follows, trim, deletes, replace)
    if replace:
        options.confirm(f"Replace streams of {path} by those of {shown(source)}?", yes=yes)
    if trim != "none":
        options.confirm(f"Trim at {shown(source)} what is safe here ({trim})?", yes=yes)
    if deletes == "apply":
        options.confirm(f"Delete in {path} what is deleted at {shown(source)}?", yes=yes)
    report = Report()
    try:
        with options.opened(path, sync=sync) as store, output.progress("Importing") as progress:
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
    store: Store[bytes],
    source: tuple[str, Path | None, str | None, int, int],
    wanted: Wanted,
    report: Report,
    progress: Progress,
) -> None:
    where, password_file, name, db, dump_max_bytes = source
    if is_server(where):
        from logstore.transfer.server_import import import_server

        with server_at(where, password_file) as server:
            import_server(
                store,
                server,
                wanted,
                dump_max_bytes=dump_max_bytes,
                report=report,
                progress=progress,
            )
    else:
        from logstore.transfer.file_import import import_file

        raw = None if name is None else name.encode("utf-8", "surrogateescape")
        import_file(
            store, Path(where), wanted, name=raw, database=db, report=report, progress=progress
        )


def _follow(
    store: Store[bytes],
    source: str,
    password_file: Path | None,
    wanted: Wanted,
    how: Follow,
    report: Report,
    progress: Progress,
) -> None:
    from logstore.transfer.following import follow

    stop = threading.Event()
    with server_at(source, password_file) as server, _ended_by(stop.set):
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


@options.command("export")
@click.argument("target", metavar="TARGET")
@shared
@click.option(
    "--peer",
    type=click.Choice(["redis", "redis-8.6", "redis-8.8", "valkey"]),
    help="The server that is to load the file: it matters for a few lengths of values; since Redis "
    "8.6 it knows idempotent IDs, since 8.8 entries that were given back.",
)
def export_streams(
    output: Output,
    path: Path,
    target: str,
    patterns: tuple[str, ...],
    replace: bool,
    skip: bool,
    prefix: str,
    password_file: Path | None,
    dump_max: int,
    yes: bool,
    peer: Peer | None,
) -> None:
    """Write the streams of STORE to an RDB file, or bring them to a server.

    TARGET is a file, which takes its name when it is whole, or redis://[user:password@]host:port/db
    and its like. A stream that a server has already with the same last ID, length and entries added
    is passed over, so an export that was killed is begun again and goes on.
    """
    from logstore.transfer.job import Report

    wanted = wanted_of(patterns, prefix, replace=replace, skip=skip)
    if skip and not is_server(target):
        raise click.UsageError("--skip is for a server; a file is written whole")
    if replace:
        options.confirm(f"Replace what {shown(target)} has of these names?", yes=yes)
    report = Report()
    try:
        with options.opened(path, create=False) as store, output.progress("Exporting") as progress:
            if is_server(target):
                from logstore.transfer.server_export import export_server

                with server_at(target, password_file) as server:
                    export_server(
                        store,
                        server,
                        wanted,
                        dump_max_bytes=dump_max * MIB,
                        report=report,
                        progress=progress,
                    )
            else:
                from logstore.transfer.file_export import export_file

                export_file(
                    store, Path(target), wanted, peer=peer, report=report, progress=progress
                )
    except BaseException:
        output.context = report.as_dict()
        raise
    output.report(report.as_dict())


@click.group("redis")
def redis() -> None:
    """Carry streams from and to Redis and Valkey: RDB files, payloads, servers that run."""


redis.add_command(import_streams)
redis.add_command(export_streams)
