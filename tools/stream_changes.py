"""Commands that change streams: delete, trim, drop, rename, copy, configure, expire, schedule.

Invariants: what cannot be undone is asked for, or ``--yes`` is given; where nobody can be asked,
the command is refused before it changes anything. A stream must be there: none is made by a typing
error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import showing
from logstore.api.showing import readable, short_length
from logstore.errors import EntryNotFoundError, StreamExistsError
from logstore.options import IDEMPOTENT_IDS_MAX
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH, MOMENT, SIZE
from logstore.tools.command_output import Output
from logstore.tools.entry_commands import split_pair
from logstore.tools.interchange.text_rows import is_time
from logstore.tools.wording import length_in_words

if TYPE_CHECKING:
    from logstore.api.scheduling import ScheduledEntry
    from logstore.api.store import Store
    from logstore.api.stream import Stream
    from logstore.options import GroupSettings, StreamSettings


KEY = re.compile(r"[0-9]+-[0-9]+")


def _check_bound(bound: str) -> None:
    """UsageError for a number that is no time of today in milliseconds: as an ID it would drop all
    entries, or none."""
    text = bound.removeprefix("(")
    if not (text.isascii() and text.isdigit()) or is_time(int(text[:20])):
        return
    raise click.UsageError(
        f"{text} alone is no time of today in milliseconds, but looks like seconds, or the number "
        f"of a row: seconds need three zeros more; the ID itself is {text}-0"
    )


@options.command("delete")
@options.stream_argument
@options.ids_argument
@click.option("--range", "interval", nargs=2, metavar="START END", help="All from START to END.")
@click.option("--purge", is_flag=True, help="Rewrite all that holds them, before it returns.")
@options.yes_option
def delete(
    output: Output,
    path: Path,
    name: str,
    ids: tuple[str, ...],
    interval: tuple[str, str] | None,
    purge: bool,
) -> None:
    """Delete entries by ID, or all of an interval, as XDEL."""
    if bool(ids) == (interval is not None):
        raise click.UsageError("give IDs, or --range START END")
    what = showing.counted(len(ids), "entry", "entries")
    if interval is not None:
        for end in interval:
            _check_bound(end)
        what = f"all from {' to '.join(interval)}"
    with options.changing(path) as store:
        stream = options.existing(store, name)
        options.confirm(output, f"Delete {what} of {name!r}?")
        if interval is None:
            deleted = stream.delete(*ids, purge=purge)
        else:
            deleted = stream.delete_range(*interval, purge=purge)
    output.report({"deleted": deleted})


@options.command("trim")
@options.stream_argument
@click.option("--max-entries", type=options.number(0), help="Keep so many of the newest.")
@click.option("--min-id", help="Drop what is below this ID.")
@click.option("--max-age", type=LENGTH, help="Drop what is older: 7d, 1h30m.")
@click.option("--exact", is_flag=True, help="Also parts of nodes: slower, and keeps no more.")
@options.yes_option
def trim(output: Output, /, path: Path, name: str, exact: bool, **limits: Any) -> None:
    """Drop the oldest entries, as XTRIM: whole nodes, unless it is to be exact."""
    given = {key: value for key, value in limits.items() if value is not None}
    if len(given) != 1:
        raise click.UsageError("give one of --max-entries, --min-id and --max-age")
    if "max_entries" in given:
        what = f"all but the newest {given['max_entries']:,}"
    elif "min_id" in given:
        _check_bound(given["min_id"])
        what = f"what is below {given['min_id']}"
    else:
        what = f"what is older than {length_in_words(given['max_age'])}"
    with options.changing(path) as store:
        stream = options.existing(store, name)
        options.confirm(output, f"Drop {what} from {name!r}?")
        dropped = stream.trim(**given, approximate=not exact)
    output.report({"trimmed": dropped})


@options.command("drop")
@options.stream_argument
@options.yes_option
def drop(output: Output, path: Path, name: str) -> None:
    """Remove a stream with all its entries and groups, as DEL."""
    with options.changing(path) as store:
        stream = options.existing(store, name)
        entries = showing.counted(len(stream), "entry", "entries")
        groups = showing.counted(stream.info().groups, "group")
        options.confirm(output, f"Drop {name!r} with {entries} and {groups}?")
        output.report({"dropped": store.drop(name)})


@options.command("rename")
@click.argument("old", shell_complete=options.complete_streams)
@click.argument("new")
@click.option("--replace", is_flag=True, help="Drop a stream that is called NEW.")
@options.yes_option
def rename(output: Output, path: Path, old: str, new: str, replace: bool) -> None:
    """Call a stream otherwise, with all that is its, as RENAME."""
    with options.changing(path) as store:
        _give_name(output, store, store.rename, old, new, replace=replace)
    output.report({"renamed": True})


@options.command("copy")
@click.argument("source", shell_complete=options.complete_streams)
@click.argument("target", shell_complete=options.complete_streams)
@click.option("--replace", is_flag=True, help="Drop a stream that is called TARGET.")
@options.yes_option
def copy(output: Output, path: Path, source: str, target: str, replace: bool) -> None:
    """Copy a stream with its groups, in one commit, as COPY."""
    with options.changing(path) as store:
        _give_name(output, store, store.copy, source, target, replace=replace)
    output.report({"copied": True})


def _give_name(
    output: Output,
    store: Store[bytes],
    give: Callable[..., bool],
    old: str,
    new: str,
    *,
    replace: bool,
) -> None:
    """Rename or copy a stream; a stream of the new name is dropped only with ``replace``."""
    options.existing(store, old)
    if replace:
        options.confirm(output, f"Drop {new!r}, if there is one?")
    if not give(old, new, replace=replace):
        raise StreamExistsError("there is a stream of the new name: give --replace to drop it")


# -- settings -------------------------------------------------------------------------------------
NONE = "none"


class Setting(click.ParamType[Any]):
    """A number, a length of time or a name; ``none`` takes the setting away."""

    def __init__(self, of: click.ParamType[Any]) -> None:
        self.of = of
        self.name = of.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``none`` as it is; anything else as its type has it."""
        return NONE if value == NONE else self.of.convert(value, param, ctx)


@options.command("configure")
@options.stream_argument
@click.option("--max-age", type=Setting(LENGTH), help="Keep what is not older: 7d; or none.")
@click.option(
    "--max-entries",
    type=Setting(options.number(0)),
    help="Keep so many, and the rest of a node; none.",
)
@click.option("--max-bytes", type=Setting(SIZE), help="Keep no more: 10GiB; or none.")
@click.option("--keep-until-shipped", type=bool, metavar="[yes|no]",
              help="Drop only what was shipped.")  # fmt: skip
@click.option("--compact-by", metavar="FIELD", type=Setting(click.STRING),
              help="Keep the newest entry of each value of it; or none.")  # fmt: skip
@click.option("--codec", type=Setting(click.Choice(("json", "msgpack"))),
              metavar="[json|msgpack|none]",
              help="Encode values so from now on; none: where no entry is.")  # fmt: skip
@click.option("--idempotent-duration", type=options.WHOLE_SECONDS,
              help="Remember IDs of idempotent adds so long: 100s.")  # fmt: skip
@click.option("--idempotent-max-ids", type=options.number(1, IDEMPOTENT_IDS_MAX),
              help="And no more than these of a producer.")  # fmt: skip
@click.option("--group", metavar="NAME", help="Set what follows, of this group.",
              shell_complete=options.complete_groups)  # fmt: skip
@click.option("--max-deliveries", type=Setting(options.number(1)), help="Then an entry is dead.")
@click.option("--dead-letter", metavar="STREAM", type=Setting(click.STRING),
              help="The stream where it goes then.",
              shell_complete=options.complete_streams)  # fmt: skip
@click.option("--min-idle", type=Setting(LENGTH), help="Idle so long, others may get it.")
@click.option("--backoff", type=Setting(LENGTH), help="What failed waits so long, then twice that.")
@click.option("--backoff-max", type=LENGTH, help="But never longer than this.")
@options.yes_option
def configure(output: Output, /, path: Path, name: str, group: str | None, **given: Any) -> None:
    """Set what a stream keeps, or how a group redelivers; without options tell how they are set.

    It asks before the stream is to keep less than what is in it.
    """
    of_group = {"max_deliveries", "dead_letter", "min_idle", "backoff", "backoff_max"}
    chosen = {key: value for key, value in given.items() if value is not None}
    wanted = {key: None if value == NONE else value for key, value in chosen.items()}
    misplaced = sorted(key for key in wanted if (key in of_group) != (group is not None))
    if misplaced:
        which = "without --group" if group is not None else "with --group NAME"
        names = ", ".join(f"--{key.replace('_', '-')}" for key in misplaced)
        raise click.UsageError(f"give {names} {which}")
    with options.changing(path) if wanted else options.reading(path) as store:
        stream = options.existing(store, name)
        target: Any = stream if group is None else options.existing_group(store, name, group)
        if group is None and _drops(stream, wanted):
            options.confirm(output, f"{name!r} holds more: drop what is older?")
        found: StreamSettings | GroupSettings[bytes]
        if "codec" in wanted:
            from logstore.api.configuring import configure_codec, stream_changes
            from logstore.api.opening import opened_of

            codec = wanted.pop("codec")
            changes = stream_changes(wanted, None)  # type: ignore[arg-type]
            found = configure_codec(opened_of(store), stream.name, codec, changes)
        else:
            found = target.configure(**wanted) if wanted else target.settings
    output.report(
        {key: value.decode() if isinstance(value, bytes) else value
         for key, value in found._asdict().items()}
    )  # fmt: skip


def _drops(stream: Stream[bytes], wanted: dict[str, Any]) -> bool:
    """Whether a new or lowered limit is below what the stream holds."""
    before, info = stream.settings, stream.info()
    field = wanted.get("compact_by")
    if info.length and field is not None and field.encode() != before.compact_by:
        return True
    first = showing.at(info.recorded_first_entry_id.ms)
    holds: dict[str, Any] = {
        "max_age": None if first is None else datetime.now(UTC) - first,
        "max_entries": info.length,
        "max_bytes": info.node_bytes + info.open_node_bytes,
    }
    for name, held in holds.items():
        limit, old = wanted.get(name), getattr(before, name)
        lower = limit is not None and (old is None or limit < old)
        if info.length and held is not None and lower and held > limit:
            return True
    return False


# -- time -----------------------------------------------------------------------------------------
@options.command("expire")
@options.stream_argument
@click.option("--after", type=LENGTH, help="In so long: 30d.")
@click.option("--at", "at", type=MOMENT, help="At this moment: 2027-01-01T00:00Z.")
@click.option("--never", is_flag=True, help="Not any more.")
@options.yes_option
def expire(output: Output, /, path: Path, name: str, never: bool, **when: Any) -> None:
    """Set when a whole stream goes, as EXPIRE; without options tell when.

    It asks before a stream that is to go at once.
    """
    chosen = {key: value for key, value in when.items() if value is not None}
    if len(chosen) + never > 1:
        raise click.UsageError("give one of --after, --at and --never")
    with options.changing(path) if chosen or never else options.reading(path) as store:
        stream = options.existing(store, name)
        if never:
            stream.persist()
        elif chosen:
            now = datetime.now(UTC)
            if chosen.get("after") == timedelta(0) or chosen.get("at", now) < now:
                options.confirm(output, f"Drop {name!r} now?")
            stream.expire(**chosen)
        gone = stream.name not in store
        at = None if gone else stream.expires_at
    output.report({"expires_at": "gone" if gone else at.isoformat() if at else "never"})


@options.command("schedule")
@options.stream_argument
@click.argument("given", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option("--after", type=LENGTH, help="Add the entry in so long: 90s, 1h30m, 7d.")
@click.option("--at", "at", type=MOMENT, help="Add it at this moment; one of them with --every.")
@click.option("--every", type=LENGTH, help="Add it again and again, so long apart.")
@click.option("--cron", metavar="EXPRESSION", help="Add it at these times: '30 3 * * MON-FRI'.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron: Europe/Berlin; UTC.")
@click.option("--name", "called", help="The name of what repeats; given again it changes it.")
@click.option("--cancel", is_flag=True, help="Take out what has these keys or names.")
@options.yes_option
def schedule(
    output: Output,
    /,
    path: Path,
    name: str,
    given: tuple[str, ...],
    called: str | None,
    cancel: bool,
    **times: Any,
) -> None:
    """List the entries of STREAM that wait for their time, or have one wait.

    With FIELD=VALUE an entry is scheduled, once or again and again; with --cancel the keys or names
    of those to take out are given instead.
    """
    timed = any(each is not None for each in times.values())
    if cancel and (timed or called is not None or not given):
        raise click.UsageError("give --cancel, and the keys or names of entries")
    if (times["every"] is not None or times["cron"] is not None) and called is None:
        raise click.UsageError("give --name, by which what repeats is changed and cancelled")
    if not cancel and timed != bool(given):
        raise click.UsageError("give FIELD=VALUE with one of --after, --at, --every and --cron")
    if cancel:
        with options.changing(path) as store:
            stream = options.existing(store, name)
            options.confirm(output, f"Take {', '.join(given)} out of what {name!r} waits for?")
            _cancel(stream, given)
        output.report({"cancelled": len(given)})
    elif given:
        fields = [split_pair(pair) for pair in given]
        with options.changing(path) as store:
            stream = options.with_codec(store, name)
            row = options.typed_fields(stream, fields)
            key: Any = stream.schedule(row, name=called, **times)
        output.report({"key": str(key), "due": key.due.isoformat()})
    else:
        with options.reading(path) as store:
            for entry in options.existing(store, name).scheduled():
                _show_scheduled(output, entry)


def _cancel(stream: Stream[bytes], given: tuple[str, ...]) -> None:
    """Cancel what has these names, or else these keys; EntryNotFoundError if some do not exist."""
    missing = [
        each
        for each in given
        if not stream.cancel(name=each) and not (KEY.fullmatch(each) and stream.cancel(each))
    ]
    if missing:
        cancelled = len(given) - len(missing)
        done = f"; {cancelled} of the {len(given)} were cancelled" if cancelled else ""
        raise EntryNotFoundError(
            f"nothing waits under {', '.join(missing)}: 'logstore schedule' lists keys and "
            f"names{done}",
            stream=stream.name,
        )


def _show_scheduled(output: Output, entry: ScheduledEntry[bytes]) -> None:
    """A line about one entry."""
    from logstore.api.entry import stored_pairs
    from logstore.scan import scan_records

    if output.json:
        fields = scan_records.entry_object(str(entry.key), stored_pairs(entry))
        repeats: dict[str, Any] = {}
        if entry.name is not None:
            every_s = None if entry.every is None else entry.every.total_seconds()
            repeats = {"name": entry.name, "every": every_s, "cron": entry.cron, "tz": entry.tz}
        key = fields.pop("id")
        output.json_object({"due": entry.due.isoformat(), "key": key, **repeats, **fields})
    else:
        due = showing.date(entry.due)
        rule = f"cron {entry.cron} {entry.tz}"
        if entry.every is not None:
            rule = f"every {short_length(entry.every)}"
        repeated = "" if entry.name is None else f"{entry.name!r} ({rule})"
        pairs = (f"{readable(field)}={readable(value)}" for field, value in stored_pairs(entry))
        parts = [due, str(entry.key), repeated, *pairs]
        output.words(" ".join(part for part in parts if part), indent=len(due) + 1)
