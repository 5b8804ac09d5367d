"""``logstore redis import`` and ``export``: streams from and to RDB files, payloads, servers.

Invariants: a password is read from a file or is part of the address, and no message shows it. A
command that was interrupted can be run again, and goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.errors import OptionError
from logstore.options import Sync
from logstore.store_path import shown
from logstore.tools import command_options as options
from logstore.tools.command_options import F
from logstore.tools.command_output import EXIT_LEFT_OUT, Output
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.api.store import Store
    from logstore.engine.dump.payloads import Peer
    from logstore.transfer.following import Deletes, Trim
    from logstore.transfer.job import Policy, Wanted
    from logstore.transfer.peer_server import Server

SCHEMES = ("redis://", "rediss://", "unix://")
MIB = 1 << 20


class Carrying(NamedTuple):
    """Options of both commands: which streams are carried, and from or to where."""

    place: str
    patterns: tuple[str, ...]
    replace: bool
    skip: bool
    prefix: str
    password_file: Path | None
    dump_max: int

    @property
    def is_server(self) -> bool:
        """Whether the other side is a server, not a file."""
        return self.place.startswith(SCHEMES)

    @property
    def dump_max_bytes(self) -> int:
        """The largest stream that goes as one payload."""
        return self.dump_max * MIB

    def wanted(self) -> Wanted:
        """The streams that are to be carried."""
        from logstore.transfer.job import Wanted

        if self.replace and self.skip:
            raise click.UsageError("give one of --replace and --skip")
        policy: Policy = "replace" if self.replace else "skip" if self.skip else "refuse"
        return Wanted([_raw(each) for each in self.patterns], _raw(self.prefix), policy)

    def server(self) -> Server:
        """The server at the address."""
        from logstore.transfer.peer_server import Server

        password = None
        if self.password_file is not None:
            password = self.password_file.read_text().strip("\r\n")
            if not password:
                raise OptionError(f"{self.password_file} holds no password")
        return Server(self.place, password=password)


class Following(NamedTuple):
    """Options of --follow."""

    follows: bool
    trim: Trim
    deletes: Deletes
    every: timedelta


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _carrying(command: F) -> F:
    """The options that both commands have."""
    for option in (
        options.gathered("carrying", Carrying),
        click.option("--dump-max", type=options.number(0, 512), default=128, show_default=True,
                     help="MiB of a stream that go as one payload; larger ones go by pages."),
        click.option("--password-file",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="A file with the server's password."),
        click.option("--prefix", default="", help="Stands before every name on the other side."),
        options.yes_option,
        click.option("--skip", is_flag=True, help="Keep what has the name there already."),
        click.option("--replace", is_flag=True, help="Replace what has the name there already."),
        click.option("--stream", "patterns", multiple=True, metavar="PATTERN",
                     help="Only these: * ? [a-c], as of KEYS; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return command


@contextmanager
def _reported(
    output: Output, opened: Callable[[], Store[bytes]], what: str
) -> Iterator[tuple[Store[bytes], dict[str, Any]]]:
    """Write a report at the end, also after an error, and show the progress."""
    from logstore.transfer.job import Report

    report = Report()
    try:
        with opened() as store, output.progress(what) as progress:
            yield store, {"report": report, "progress": progress}
    except BaseException:
        output.context = report.as_dict()
        raise
    output.report(report.as_dict())
    if report.left_out:
        output.exit_code = EXIT_LEFT_OUT


@click.group("redis", cls=options.CommandGroup)
def redis() -> None:
    """Carry streams from and to Redis and Valkey: RDB files, payloads, servers that run."""


@options.command("import", group=redis)
@click.argument("place", metavar="SOURCE")
@_carrying
@click.option("--name", help="SOURCE is a file with a DUMP payload: the stream's name.")
@click.option("--db", type=options.number(0), default=0, show_default=True,
              help="Of an RDB file: the database.")  # fmt: skip
@click.option("--follow", "follows", is_flag=True, help="Go on with what is added there.")
@click.option("--trim", type=click.Choice(["none", "acked", "all"]), default="none",
              show_default=True,
              help="With --follow: trim there what is durable here.")  # fmt: skip
@click.option("--deletes", type=click.Choice(["keep", "apply"]), default="keep",
              show_default=True, help="With --follow: what is deleted there.")  # fmt: skip
@click.option("--every", type=options.length_at_least("50ms"), default="5s", show_default=True,
              help="With --follow: how often to look for new streams and deletes.")  # fmt: skip
@options.sync_option
@options.gathered("following", Following)
def import_streams(
    output: Output,
    path: Path,
    carrying: Carrying,
    following: Following,
    name: str | None,
    db: int,
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
    wanted = carrying.wanted()
    _check(carrying, following, name)
    source = shown(carrying.place)
    if carrying.replace:
        options.confirm(output, f"Replace streams of {path} by those of {source}?")
    if following.trim != "none":
        options.confirm(output, f"Trim at {source} what is safe here ({following.trim})?")
    if following.deletes == "apply":
        options.confirm(output, f"Delete in {path} what is deleted at {source}?")
    opened = partial(options.opened, path, sync=sync)
    with _reported(output, opened, "Importing") as (store, reporting):
        if following.follows:
            _follow(store, carrying, wanted, following, reporting)
        elif carrying.is_server:
            from logstore.transfer.server_import import import_server

            with carrying.server() as server:
                most = carrying.dump_max_bytes
                import_server(store, server, wanted, dump_max_bytes=most, **reporting)
        else:
            from logstore.transfer.rdb_files import import_file

            raw = None if name is None else _raw(name)
            import_file(store, Path(carrying.place), wanted, name=raw, database=db, **reporting)


def _check(carrying: Carrying, following: Following, name: str | None) -> None:
    if following.follows and not carrying.is_server:
        raise click.UsageError("--follow needs a server, as redis://host:port/db")
    if name is not None and carrying.is_server:
        raise click.UsageError("--name is for a file with a DUMP payload; --stream chooses")
    if following.follows and carrying.replace:
        raise click.UsageError("--follow goes on with what is there: it replaces nothing")
    if not following.follows and (following.trim != "none" or following.deletes != "keep"):
        raise click.UsageError("--trim and --deletes need --follow")


def _follow(
    store: Store[bytes],
    carrying: Carrying,
    wanted: Wanted,
    chosen: Following,
    reporting: dict[str, Any],
) -> None:
    from logstore.signal_handlers import stopped_by_signals
    from logstore.transfer.following import Follow, follow

    how = Follow(
        chosen.trim,
        chosen.deletes,
        look_s=chosen.every.total_seconds(),
        dump_max_bytes=carrying.dump_max_bytes,
    )
    stop = threading.Event()
    with carrying.server() as server, stopped_by_signals(stop.set):
        follow(store, server, wanted, how, stop=stop, **reporting)


@options.command("export", group=redis)
@click.argument("place", metavar="TARGET")
@_carrying
@click.option(
    "--peer",
    type=click.Choice(["redis", "redis-8.6", "redis-8.8", "valkey"]),
    help="The server that is to load the file: it matters for a few lengths of values; since Redis "
    "8.6 it knows idempotent IDs, since 8.8 entries that were given back.",
)
def export_streams(output: Output, path: Path, carrying: Carrying, peer: Peer | None) -> None:
    """Write the streams of STORE to an RDB file, or bring them to a server.

    TARGET is a file, which takes its name when it is whole, or redis://[user:password@]host:port/db
    and its like. A stream that a server has already with the same last ID, length and entries added
    is passed over, so an export that was killed is begun again and goes on.
    """
    wanted = carrying.wanted()
    if carrying.skip and not carrying.is_server:
        raise click.UsageError("--skip is for a server; a file is written whole")
    if carrying.replace:
        options.confirm(output, f"Replace what {shown(carrying.place)} has of these names?")
    opened = partial(options.opened, path, create=False)
    with _reported(output, opened, "Exporting") as (store, reporting):
        if carrying.is_server:
            from logstore.transfer.server_export import export_server

            with carrying.server() as server:
                most = carrying.dump_max_bytes
                export_server(store, server, wanted, dump_max_bytes=most, **reporting)
        else:
            from logstore.transfer.rdb_files import export_file

            export_file(store, Path(carrying.place), wanted, peer=peer, **reporting)
