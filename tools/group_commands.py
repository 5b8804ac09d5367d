"""``logstore groups``, ``pending``, ``ack``, ``claim`` and ``dead``: groups and dead letters.

Invariants: a stream and a group must exist; nothing is read on behalf of a consumer. Before entries
are dropped the user is asked, unless ``--yes`` is given. If one of the dead letters that are to be
given back is gone, none is given back.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import showing
from logstore.api.showing import quoted, readable, short_length
from logstore.errors import EntryNotFoundError
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output
from logstore.tools.wording import by_json_names, dated, name_object

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.info import GroupInfo, PendingEntry


HEAD = ("stream", "group", "consumers", "pending", "lag", "last delivered")


@options.command("groups")
@options.optional_stream_argument
def groups(output: Output, path: Path, name: str | None) -> None:
    """List groups, of all streams or of one: how far they are, and what is pending."""
    with options.reading(path) as store:
        names = store.streams() if name is None else [options.existing(store, name).name]
        found = [(stream, each) for stream in names for each in store.stream(stream).groups()]
    output.listing(
        found,
        _group_object,
        HEAD,
        _group_row,
        narrow=("last delivered", "consumers"),
        none="no group",
    )


def _group_object(found: tuple[bytes, GroupInfo[bytes]]) -> dict[str, Any]:
    stream, group = found
    return {"stream": readable(stream), **by_json_names(group), **name_object(group.name)}


def _group_row(found: tuple[bytes, GroupInfo[bytes]]) -> tuple[object, ...]:
    stream, group = found
    lag: object = "unknown" if group.lag is None else group.lag
    last = dated(group.last_delivered_id)
    return (stream, group.name, group.consumers, group.pending, lag, last)


@options.command("pending")
@options.stream_argument
@options.group_argument
@click.option("--consumer", metavar="NAME", help="Of this consumer only.",
              shell_complete=options.complete_consumers)  # fmt: skip
@click.option("--min-idle", type=LENGTH, default="0", help="Idle for so long: 30s, 5m.")
@options.count_option()
def pending(
    output: Output, /, path: Path, name: str, group_name: str, count: int, **filters: Any
) -> None:
    """List what was delivered and not acknowledged, the smallest IDs first, as XPENDING."""
    with options.reading(path) as store:
        group = options.existing_group(store, name, group_name)
        entries = islice(group.pending_entries(**filters), count or None)
        none = (
            "nothing that is pending is like that"
            if any(filters.values())
            else "nothing is pending"
        )
        head = ("ID", "consumer", "idle", "deliveries")
        output.listing(
            entries, by_json_names, head, _pending_row, narrow=("deliveries",), none=none
        )


def _pending_row(found: PendingEntry[bytes]) -> tuple[object, ...]:
    return (str(found.id), found.consumer, short_length(found.idle), found.delivery_count)


@options.command("ack")
@options.stream_argument
@options.group_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def ack(output: Output, path: Path, name: str, group_name: str, ids: tuple[str, ...]) -> None:
    """Say that entries of a group are done, as XACK."""
    with options.changing(path) as store:
        group = options.existing_group(store, name, group_name)
        output.report({"acknowledged": group.ack(*ids)})


@options.command("claim")
@options.stream_argument
@options.group_argument
@click.argument("consumer", shell_complete=options.complete_consumers)
@options.ids_argument
@click.option("--min-idle", type=LENGTH, required=True, help="Only what is idle for so long: 5m.")
@options.count_option("Without IDs: at most this many, the smallest.", least=1)
@options.raw_option
def claim(
    output: Output,
    /,
    path: Path,
    name: str,
    group_name: str,
    consumer: str,
    ids: tuple[str, ...],
    count: int,
    **how: Any,
) -> None:
    """Give pending entries to CONSUMER and print them, as XCLAIM; without IDs as XAUTOCLAIM."""
    with options.changing(path) as store:
        group = options.existing_group(store, name, group_name)
        if ids:
            claimed = group.claim(consumer, *ids, **how)
        else:
            claimed = group.autoclaim(consumer, count=count, **how).entries
        schema = options.schema_for_json(output, store.stream(name))
        for each in claimed:
            output.entry(each, schema)


# -- dead letters ---------------------------------------------------------------------------------
all_option = click.option("--all", "every", is_flag=True, help="All that are there now.")


@click.group("dead", cls=options.CommandGroup)
def dead() -> None:
    """Look at dead letters, give them back, or drop them.

    A group that has max-deliveries and dead-letter ('logstore configure') moves an entry that was
    delivered so often without an ack to another stream: a dead letter.
    """


@options.command("list", group=dead)
@options.optional_stream_argument
@options.count_option()
@options.raw_option
def list_(output: Output, path: Path, name: str | None, count: int) -> None:
    """List the streams of dead letters, or the dead letters of one, the oldest first."""
    from logstore.api.info import dead_letter_streams, summaries
    from logstore.api.opening import opened_of

    with options.reading(path) as store:
        if name is not None:
            for entry in options.existing(store, name).range(count=count or None):
                _show_dead_letter(output, entry)
            return
        found = list(summaries(opened_of(store), store.streams()))
        lengths = {each.name: each.length for each in found}
        letters = [
            (target, lengths.get(target, 0), senders)
            for target, senders in sorted(dead_letter_streams(found).items())
        ]
    output.listing(
        letters,
        lambda each: {**name_object(each[0]), "length": each[1], "groups": each[2]},
        ("stream", "dead letters", "of groups"),
        lambda each: (each[0], each[1], ", ".join(each[2])),
        none="no group sends its dead letters anywhere",
    )


def _show_dead_letter(output: Output, entry: Entry[bytes]) -> None:
    """Write a dead letter: on a terminal its origin, why it died, and its fields; else as any
    entry."""
    from logstore.api.entry import stored_pairs
    from logstore.engine.groups.dead_letter import ORIGIN_FIELDS

    origin = {name: value for name, value in stored_pairs(entry) if name in ORIGIN_FIELDS}
    if not output.on_terminal or not set(ORIGIN_FIELDS) <= set(origin):
        output.entry(entry)
        return
    stream, at, group, consumer, count, error = (readable(origin[each]) for each in ORIGIN_FIELDS)
    tries = f"{count} deliver{'y' if count == '1' else 'ies'}, the last to {consumer}"
    output.words(f"{entry.id}  from {stream} {at}, given up by {group} after {tries}", indent=4)
    own = (pair for pair in stored_pairs(entry) if pair[0] not in origin)
    for line in (error, " ".join(quoted(f"{readable(a)}={readable(b)}") for a, b in own)):
        if line:
            output.words(f"    {line}", indent=6)


@options.command("show", group=dead)
@options.stream_argument
@click.argument("entry_id", metavar="ID")
def show_letter(output: Output, path: Path, name: str, entry_id: str) -> None:
    """Show one dead letter, a field a line: its own, then where it came from and why it died."""
    from logstore.api.entry import stored_pairs

    with options.reading(path) as store:
        entry = options.existing(store, name).get(entry_id)
    if entry is None:
        raise EntryNotFoundError(f"there is no entry {entry_id}", stream=name.encode())
    if output.json:
        output.entry(entry)
    else:
        output.table(("", ""), [("id", str(entry.id)), *stored_pairs(entry)])


@options.command("retry", group=dead)
@options.stream_argument
@options.ids_argument
@all_option
@click.option("--to", metavar="STREAM", help="Another stream than the one each came from.",
              shell_complete=options.complete_streams)  # fmt: skip
def retry(
    output: Output, path: Path, name: str, ids: tuple[str, ...], every: bool, to: str | None
) -> None:
    """Give dead letters back to the streams that they came from, as new entries."""
    _check_chosen(ids, every=every)
    with options.changing(path) as store:
        stream = options.existing(store, name)
        added = store.requeue(stream.name, *ids, to=to)
    output.report({"requeued": len(added)})


@options.command("drop", group=dead)
@options.stream_argument
@options.ids_argument
@all_option
@options.yes_option
def drop(output: Output, path: Path, name: str, ids: tuple[str, ...], every: bool) -> None:
    """Delete dead letters for good."""
    _check_chosen(ids, every=every)
    with options.changing(path) as store:
        stream = options.existing(store, name)
        number = len(stream) if every else len(ids)
        what = ("all " if every else "") + showing.counted(number, "entry", "entries")
        options.confirm(output, f"Delete {what} of {name}?")
        gone = stream.delete_range("-", stream.last_id) if every else stream.delete(*ids)
    output.report({"dropped": gone})


def _check_chosen(ids: tuple[str, ...], *, every: bool) -> None:
    if every == bool(ids):
        raise click.UsageError("give the IDs of entries, or --all")
