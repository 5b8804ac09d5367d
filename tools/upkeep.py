"""``logstore backup``, ``ship``, ``restore``, ``verify``, ``checkpoint`` and ``ping``.

Invariants: a backup is checked before anything is made of it, and left as it is; what ``restore``
makes has its name only once it is whole.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import DamagedStoreError, DiskFullError
from logstore.loading import load
from logstore.tools import options
from logstore.tools.output import EXIT_OK, Output
from logstore.uri_path import shown

if TYPE_CHECKING:
    from logstore.api.store import Store
    from logstore.recovery import check

EXIT_DAMAGED = 1


@options.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
def backup(output: Output, path: Path, target: Path) -> None:
    """Copy STORE into TARGET, a new directory, without stopping anybody.

    The copy is itself a store: what was acknowledged when it began is in it.
    """
    from logstore.recovery import backup as backups

    with options.changing(path) as store:
        store.backup(target)
    output.report({"backup": str(target), "bytes": backups.size_bytes(target)})


@options.command("ship")
@click.argument("uri")
@click.option(
    "--take-over", is_flag=True, help="Go on in the place of a copy of the store that is gone."
)
def ship(output: Output, path: Path, uri: str, take_over: bool) -> None:
    """Publish STORE at URI, in an object store or another file system; send only what is new there.

    URI is what pyarrow takes (s3://bucket/path, gs://, hdfs://, file:///), or a directory. What was
    acknowledged when it began is in it. Readers see the state before or the state after.

    A copy of STORE (a backup, or a store that was restored) needs a URI of its own, or, once,
    --take-over.
    """
    from logstore.api.opening import opened_of
    from logstore.format import position_parts
    from logstore.recovery import shipping

    with options.changing(path) as store, output.progress("Shipping") as progress:
        opened = opened_of(store).live()
        done = shipping.ship(
            opened.engine, opened.committer, uri, take_over=take_over, progress=progress
        )
    told = done._asdict()
    if not output.json:
        segment, offset = position_parts(done.position)
        told["position"] = f"segment {segment:,}, offset {offset:,}"
    output.report({"shipped": shown(uri), **told})


@options.command("verify")
def verify(output: Output, path: Path) -> None:
    """Read all of a backup and tell whether it is whole, and what is in it; change nothing.

    All of a backup was durable when it was taken, so bytes behind its last readable commit are
    damage here. (In a store that crashed they need not be: 'logstore check' tells the two apart.)

    Exit code: 0 whole, 1 damaged or no store.
    """
    from logstore.recovery import check

    with output.progress("Verifying") as progress:
        found = check.check(path, progress=progress, careful=True)
    whole = not found.damage and not found.tail_bytes
    output.exit_code = EXIT_OK if whole else EXIT_DAMAGED
    told = found.as_dict()
    chosen = ("streams", "entries", "segments", "commits", "log_bytes", "tail_bytes", "damage")
    output.report({"whole": whole, **{key: told[key] for key in chosen}})


@options.command("restore", store=False)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="STORE", type=click.Path(path_type=Path))
def restore(output: Output, source: str, target: Path) -> None:
    """Make STORE, a new directory, of BACKUP; the backup stays as it is.

    BACKUP is the directory of one, or the URI (or the directory) that a store was shipped to.
    """
    from logstore.log import shipped

    if "://" in source or (Path(source) / shipped.MANIFEST).exists():
        _restore_shipped(output, source, target)
    else:
        _restore_backup(output, Path(source), target)


def _restore_shipped(output: Output, uri: str, target: Path) -> None:
    from logstore.recovery import check, fetch

    with output.progress("Fetching") as progress:
        fetch.fetch(uri, target, progress=progress)
    with output.progress("Verifying the store") as progress:
        found = check.check(target, progress=progress, careful=True)
    _refuse_damaged(found, "what was shipped")
    output.report({"store": str(target), "streams": found.streams, "entries": found.entries})


def _restore_backup(output: Output, source: Path, target: Path) -> None:
    from logstore.recovery import backup as backups
    from logstore.recovery import check

    with output.progress("Verifying the backup") as progress:
        found = check.check(source, progress=progress, careful=True)
    _refuse_damaged(found, "the backup")
    with output.progress("Restoring") as progress:
        backups.restore(source, target, progress=progress)
    output.report({"store": str(target), "streams": found.streams, "entries": found.entries})


def _refuse_damaged(found: check.CheckReport, what: str) -> None:
    if found.damage or found.tail_bytes:
        why = found.damage[0].why if found.damage else "its log ends in bytes that are no commit"
        raise DamagedStoreError(
            f"{what} is damaged: {why}; 'logstore recover BACKUP --salvage STORE' takes out "
            "what can be read",
            segment=found.damage[0].segment if found.damage else found.tail_segment,
            offset=found.damage[0].from_offset if found.damage else found.tail_offset,
        )


@options.command("checkpoint")
def checkpoint(output: Output, path: Path) -> None:
    """Take a checkpoint now, so that an index that is lost is rebuilt sooner."""
    with options.changing(path) as store:
        output.report({"checkpoint_bytes": store.checkpoint()})


def _check_room(store: Store[bytes]) -> None:
    """DiskFullError where an add would be refused."""
    from logstore import fsinfo
    from logstore.api.opening import opened_of
    from logstore.engine.maintenance import space_alarm

    engine = opened_of(store).engine()
    if engine.wake.full or space_alarm.is_full(*fsinfo.space(engine.path)):
        raise DiskFullError(
            f"the disk of {engine.path} is full, and adds are refused: make room on it, or trim a "
            "stream and run 'logstore compact'"
        )


@options.command("ping")
@click.option("--write", is_flag=True, help="Also tell whether an add would be taken: lock, disk.")
def ping(output: Output, path: Path, write: bool) -> None:
    """Tell whether a store can be opened and read, and how long that took: a health check.

    Exit code: 0 it can, 1 it cannot.
    """
    load("logstore.api.open_store")  # that is no part of what is measured
    started = time.perf_counter()
    with options.changing(path) if write else options.reading(path) as store:
        if write:
            store.sync()
            _check_room(store)
        streams = len(store.streams())
    took_ms = (time.perf_counter() - started) * 1000
    output.report({"ok": True, "streams": streams, "took_ms": round(took_ms, 1)})
