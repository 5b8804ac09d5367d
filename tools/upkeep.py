"""Looking after a store: ping, check, recover, checkpoint, backup, ship, verify, restore, upgrade,
retain, compact and pins.

``check`` changes nothing, and exits with 0 for a clean store; 1 damaged; 2 wrong usage, or nothing
there that could be checked; 3 whole, but behind the last commit lies an unacknowledged tail, which
the next opening sets aside. ``recover`` does what opening does after a crash; with ``--salvage``
the store is left as it is, what can be read of it goes into a new one, and 3 says that something
is gone or not certain.

Invariants: a backup is checked before it is restored, and never changed; a restored store takes its
name when it is whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore import __version__
from logstore.api import showing
from logstore.errors import CorruptionError, DamagedStoreError, DiskFullError, Error
from logstore.loading import load
from logstore.store_path import shown
from logstore.tools import command_options as options
from logstore.tools.command_output import EXIT_LEFT_OUT, EXIT_OK, EXIT_USAGE, Output
from logstore.tools.text_tables import ByteCount

if TYPE_CHECKING:
    from logstore.api.info import PinInfo
    from logstore.api.store import Store
    from logstore.recovery import check
    from logstore.recovery.report import RecoveryReport


EXIT_DAMAGED = 1


@options.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
def backup(output: Output, path: Path, target: Path) -> None:
    """Copy STORE into TARGET, a new directory, without stopping anybody.

    The copy is itself a store: what was acknowledged when it began is in it. STORE may be on a
    read-only mount.
    """
    from logstore.recovery import backup as backups

    with options.copying(path) as store:
        store.backup(target)
    output.report({"backup": str(target), "bytes": backups.size_bytes(target)})


@options.command("ship")
@click.argument("uri")
@click.option(
    "--take-over", is_flag=True, help="Go on in the place of a copy of the store that is gone."
)
@click.option(
    "--keep", type=options.LENGTH, default="2h", show_default=True,
    help="How long files stay that only older states have, for who reads one.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Read what is there; send anew what was changed.")
def ship(
    output: Output, path: Path, uri: str, take_over: bool, keep: timedelta, verify: bool
) -> None:
    """Publish STORE at URI, in an object store or another file system; send only what is new there.

    URI is what pyarrow takes (s3://bucket/path, gs://, hdfs://, file:///), or a directory. What was
    acknowledged when it began is in it. Readers see the state before or the state after.

    A copy of STORE (a backup, or a store that was restored) needs a URI of its own, or, once,
    --take-over. After an erasure ('logstore compact --purge') ship once more to each URI: then it
    is erased there, too, whatever --keep says.
    """
    from logstore.api import arguments
    from logstore.api.opening import opened_of
    from logstore.format import position_parts
    from logstore.recovery import shipping

    with options.changing(path) as store, output.progress("Shipping") as progress:
        opened = opened_of(store).live()
        done = shipping.ship(
            opened.engine,
            opened.committer,
            uri,
            take_over=take_over,
            keep_ms=arguments.milliseconds(keep, "keep"),
            verify=verify,
            progress=progress,
        )
    values = done._asdict()
    if not output.json:
        segment, offset = position_parts(done.position)
        values["position"] = f"segment {segment:,}, offset {offset:,}"
    output.report({"shipped": shown(uri), **values})


@options.command("verify")
def verify(output: Output, path: Path) -> None:
    """Read all of a backup and tell whether it is whole, and what is in it; change nothing.

    All of a backup was durable when it was taken, so bytes behind its last readable commit are
    damage here. (In a store that crashed they need not be: 'logstore check' tells the two apart.)

    Exit code: 0 whole, 1 damaged or no store.
    """
    found = _read_all(output, path, "Verifying")
    whole = not found.damage and not found.tail_bytes
    output.exit_code = EXIT_OK if whole else EXIT_DAMAGED
    values = found.as_dict()
    chosen = ("streams", "entries", "segments", "commits", "log_bytes", "tail_bytes", "damage")
    output.report({"whole": whole, **{key: values[key] for key in chosen}})


@options.command("restore", store=False)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="STORE", type=click.Path(path_type=Path))
def restore(output: Output, source: str, target: Path) -> None:
    """Make STORE, a new directory, of BACKUP; the backup stays as it is.

    BACKUP is the directory of one, or the URI (or the directory) that a store was shipped to.
    """
    from logstore.log import shipped
    from logstore.recovery import backup
    from logstore.recovery import backup as backups

    if "://" in source or (Path(source) / shipped.MANIFEST).exists():
        with output.progress("Fetching") as progress:
            backup.fetch(source, target, progress=progress)
        found = _read_all(output, target, "Verifying the store")
        _refuse_damaged(found, "what was shipped")
    else:
        found = _read_all(output, Path(source), "Verifying the backup")
        _refuse_damaged(found, "the backup")
        with output.progress("Restoring") as progress:
            backups.restore(Path(source), target, progress=progress)
    output.report({"store": str(target), "streams": found.streams, "entries": found.entries})


@options.command("upgrade")
@click.option(
    "--backup", type=click.Path(path_type=Path), metavar="DIRECTORY",
    help="Where the store is kept as it was.  [default: STORE.format-N]",
)  # fmt: skip
@click.option("--back-out", is_flag=True, help="Put that backup in the place of STORE.")
def upgrade(output: Output, path: Path, backup: Path | None, back_out: bool) -> None:
    """Bring STORE to the format of this version, which keeps it as it was beside it.

    STORE must be closed everywhere. It is read whole, copied to --backup, and the copy is read
    whole, before anything in it changes. Opening a store for writing brings it to the format of
    today, too, without all that.

    --back-out gives an older version its store back: the backup becomes STORE, and the upgraded
    store STORE.format-N, where entries stay that were added since.
    """
    from logstore.recovery import format_upgrade

    if back_out:
        with output.progress("Backing out") as progress:
            left = format_upgrade.back_out(path, backup, progress=progress)
        output.report({"store": str(path), **left._asdict(), "aside": str(left.aside)})
        return
    with output.progress("Upgrading") as progress:
        done = format_upgrade.upgrade(path, backup, progress=progress)
    if done.backup is None:
        why = f"nothing to do: that is the format of logstore {__version__}"
        output.report({"store": str(path), "format": done.format, "note": why})
    else:
        output.report({"store": str(path), **done._asdict(), "backup": str(done.backup)})


def _read_all(output: Output, path: Path, doing: str) -> check.CheckReport:
    """Check every frame of a store."""
    from logstore.recovery import check

    with output.progress(doing) as progress:
        return check.check(path, progress=progress, careful=True)


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
    from logstore.engine.runtime import disk_space

    engine = opened_of(store).engine()
    if engine.wake.full or disk_space.is_full(*fsinfo.space(engine.path)):
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
    load("logstore.api.store")  # before the measured time
    started = time.perf_counter()
    with options.changing(path) if write else options.reading(path) as store:
        if write:
            store.sync()
            _check_room(store)
        streams = len(store.streams())
    took_ms = (time.perf_counter() - started) * 1000
    output.report({"ok": True, "streams": streams, "took_ms": round(took_ms, 1)})


EXIT_TAIL = 3


@options.command("check")
def check_(output: Output, path: Path) -> None:
    """Verify every frame of a store, and change nothing.

    Exit code: 0 clean, 1 damaged, 2 wrong usage or no store, 3 an unacknowledged tail was found.
    """
    try:
        found = _read_all(output, path, "Checking")
    except CorruptionError:
        output.exit_code = EXIT_DAMAGED
        raise
    except Error:
        output.exit_code = EXIT_USAGE
        raise
    output.exit_code = EXIT_DAMAGED if found.damage else EXIT_TAIL if found.tail_bytes else EXIT_OK
    values = found.as_dict()
    if not output.json and not found.tail_bytes:
        del values["tail_segment"], values["tail_offset"]  # there is no tail
    _report_with_tables(output, values, () if output.json else ("concerned",))


def _report_with_tables(output: Output, values: dict[str, Any], names: Sequence[str]) -> None:
    """Write a report, with the lists under some names as tables."""
    lists = {name: values.pop(name) for name in names}
    output.report(values)
    for name, found in lists.items():
        if found:
            rows = [list(each.values()) for each in found]
            output.table(list(found[0]), rows, title=f"{name}:")


@options.command("recover")
@click.option(
    "--salvage",
    "target",
    type=click.Path(path_type=Path),
    metavar="DEST",
    help="Change nothing; take what is left into a new store in DEST, and list what is gone.",
)
def recover(output: Output, path: Path, target: Path | None) -> None:
    """Make a store whole after a crash, and tell what was found and done.

    Opening a store does the same by itself. Needed only where opening says so. Exit code 3: what
    --salvage made is not all that there was.
    """
    from logstore.recovery import recover as recovery
    from logstore.recovery.salvage import run

    if target is None:
        with output.progress("Recovering") as progress:
            found = recovery.recover(path, progress=progress)
        _report_recovery(output, found)
        return
    with output.progress("Salvaging") as progress:
        made = run.salvage(path, target, progress=progress)
    output.exit_code = output.exit_code if made.whole else EXIT_LEFT_OUT
    values = made.as_dict()
    unsure = [] if output.json else values.pop("unsure")
    _report_with_tables(output, values, () if output.json else ("gone", "damage"))
    for text in unsure:
        output.line(f"not certain: {text}")


def _report_recovery(output: Output, found: RecoveryReport) -> None:
    """Write what was found and done; people are not told what was not."""
    values = found.as_dict()
    if output.json:
        output.report(values)
    elif found.has_news:
        output.report({name: value for name, value in values.items() if value})
    else:
        output.line("nothing to do: the store is whole, and its index is that of the log")


@options.command("retain")
def retain(output: Output, path: Path) -> None:
    """Drop what is older, or more, than streams keep by their settings, in whole nodes.

    A process that has the store open does this by itself every second, unless it was opened with
    background=False. 'logstore compact' gives the space back at once.
    """
    with options.changing(path) as store:
        dropped = store.retain()
    output.report({"entries_dropped": dropped})


@options.command("compact")
@click.option("--purge", is_flag=True, help="Rewrite all that still holds a deleted entry.")
@click.option("--full", is_flag=True, help="Rewrite what is dead by a hundredth, and the index.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Rewrite nodes and segments that are dead by more than this share.",
)
def compact(output: Output, path: Path, purge: bool, full: bool, threshold: float) -> None:
    """Rewrite nodes with many tombstones and drop segments that are mostly dead.

    Safe beside readers and writers, and safe to interrupt. After --purge no file of the store
    holds a byte of a deleted entry; backups and copies are out of reach.
    """
    with options.opened(path, create=False) as store:
        found = store.compact(purge=purge, full=full, threshold=threshold)
    output.report(found.as_dict())


@options.command("pins")
@options.ids_argument
@click.option("--release", is_flag=True, help="Give back the pins named, or all of them.")
def pins(output: Output, path: Path, ids: tuple[str, ...], release: bool) -> None:
    """List pins: which process keeps segments from compaction, since when, and how much.

    With --release they are given back; what still reads by them, such as a Spark job, ends with an
    error. Then 'logstore compact' gives the space back.
    """
    if ids and not release:
        raise click.UsageError("IDs are for --release")
    if release:
        with options.changing(path) as store:
            output.report({"released": store.release_pins(*ids)})
        return
    with options.reading(path) as store:
        found = store.pins()
    head = ("ID", "for", "process", "since", "until", "segments", "keeps")
    shown = {"narrow": ("until", "segments", "since"), "none": "no pin", "whole": ("ID",)}
    output.listing(found, lambda each: each.as_dict(), head, _pin_row, **shown)


def _pin_row(pin: PinInfo) -> tuple[object, ...]:
    return (
        pin.id,
        pin.purpose,
        f"{pin.pid} on {pin.host}" if pin.host else pin.pid,
        "" if pin.since is None else showing.ago(pin.since),
        showing.ago(pin.until),
        "all" if pin.segments is None else pin.segments,
        ByteCount(pin.segment_bytes + pin.snapshot_bytes),
    )
