"""``logstore dead``: the entries that groups gave up, from a shell: look, give back, drop.

Invariants: what is dropped is asked for before, or ``--yes``; where one that is to be given back is
gone, nothing of the call happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.api import units
from logstore.errors import EntryNotFoundError
from logstore.tools import options
from logstore.tools.output import Output, name_object, quoted, readable

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.store import Store

ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1)
all_option = click.option("--all", "every", is_flag=True, help="All that are there now.")


@click.group("dead")
def dead() -> None:
    """Look at dead letters, give them back, or drop them.

    A group that has max-deliveries and dead-letter ('logstore configure') moves an entry that was
    delivered so often without an ack to another stream: a dead letter.
    """


def _named(store: Store[bytes]) -> Iterator[tuple[bytes, list[tuple[bytes, bytes]]]]:
    """Streams of dead letters, and the groups (with their streams) that send theirs there."""
    senders: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for name in store.streams():
        for group in store.stream(name).groups():
            target = group.settings.dead_letter
            if target is not None:
                senders.setdefault(target, []).append((name, group.name))
    yield from sorted(senders.items())


@options.command("list", group=dead)
@options.optional_stream_argument
@click.option("-n", "--count", type=click.IntRange(min=0), default=100, show_default=True,
              help="At most this many; 0: all.")  # fmt: skip
def list_(output: Output, path: Path, name: str | None, count: int) -> None:
    """List the streams of dead letters, or the dead letters of one, the oldest first."""
    with options.reading(path) as store:
        if name is not None:
            for entry in options.existing(store, name).range(count=count or None):
                _letter(output, entry)
            return
        rows = []
        for target, senders in _named(store):
            length = len(store.stream(target)) if target in store else 0
            names = [f"{readable(stream)}/{readable(group)}" for stream, group in senders]
            if output.json:
                output.json_object({**name_object(target), "length": length, "groups": names})
            rows.append((target, length, ", ".join(names)))
    if not output.json:
        none = "no group sends its dead letters anywhere"
        output.table(("stream", "dead letters", "of groups"), rows, none=none)


def _letter(output: Output, entry: Entry[bytes]) -> None:
    """A dead letter; a terminal gets where it came from first, then why it died, then what is in
    it, and a pipe an entry as all others."""
    from logstore.engine.groups.dead_letter import ORIGIN_FIELDS

    origin = {name: value for name, value in entry.pairs if name in ORIGIN_FIELDS}
    if not output.on_terminal or not set(ORIGIN_FIELDS) <= set(origin):
        output.entry(entry)
        return
    stream, at, group, consumer, count, error = (readable(origin[each]) for each in ORIGIN_FIELDS)
    tries = f"{count} deliver{'y' if count == '1' else 'ies'}, the last to {consumer}"
    output.words(f"{entry.id}  from {stream} {at}, given up by {group} after {tries}", indent=4)
    own = (pair for pair in entry.pairs if pair[0] not in origin)
    for line in (error, " ".join(quoted(f"{readable(a)}={readable(b)}") for a, b in own)):
        if line:
            output.words(f"    {line}", indent=6)


@options.command("show", group=dead)
@options.stream_argument
@click.argument("entry_id", metavar="ID")
def show(output: Output, path: Path, name: str, entry_id: str) -> None:
    """Show one dead letter, a field a line: its own, then where it came from and why it died."""
    with options.reading(path) as store:
        entry = options.existing(store, name).get(entry_id)
    if entry is None:
        raise EntryNotFoundError(f"there is no entry {entry_id}", stream=name.encode())
    if output.json:
        output.entry(entry)
    else:
        output.table(("", ""), [("id", str(entry.id)), *entry.pairs])


@options.command("retry", group=dead)
@options.stream_argument
@ids_argument
@all_option
@click.option("--to", metavar="STREAM", help="Another stream than the one each came from.")
def retry(
    output: Output, path: Path, name: str, ids: tuple[str, ...], every: bool, to: str | None
) -> None:
    """Give dead letters back to the streams that they came from, as new entries."""
    _check(ids, every=every)
    with options.changing(path) as store:
        stream = options.existing(store, name)
        added = store.requeue(stream.name, *ids, to=to)
    output.report({"requeued": len(added)})


@options.command("drop", group=dead)
@options.stream_argument
@ids_argument
@all_option
@options.yes_option
def drop(
    output: Output, path: Path, name: str, ids: tuple[str, ...], every: bool, yes: bool
) -> None:
    """Delete dead letters for good."""
    _check(ids, every=every)
    with options.changing(path) as store:
        stream = options.existing(store, name)
        number = len(stream) if every else len(ids)
        what = ("all " if every else "") + units.counted(number, "entry", "entries")
        options.confirm(f"Delete {what} of {name}?", yes=yes)
        gone = stream.delete_range("-", stream.last_id) if every else stream.delete(*ids)
    output.report({"dropped": gone})


def _check(ids: tuple[str, ...], *, every: bool) -> None:
    if every == bool(ids):
        raise click.UsageError("give the IDs of entries, or --all")
