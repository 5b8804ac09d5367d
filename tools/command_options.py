"""What the commands share: their common options, and how they open a store.

Invariants: a command that only reads never makes a store, and changes nothing in one. What opens a
store is loaded when one is opened, so that help is there at once: a module of a command imports at
its top what its options need, and in its functions what does its work.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from logstore.clock import SYSTEM_CLOCK, read_length
from logstore.errors import (
    Error,
    GroupNotFoundError,
    OptionError,
    StreamNotFoundError,
    UsageError,
)
from logstore.ids import moment_of
from logstore.loading import load
from logstore.store_path import is_uri, path_of
from logstore.tools.command_help import Command, HelpContext
from logstore.tools.command_output import EXIT_USAGE, Output

if TYPE_CHECKING:  # it loads more than a short command needs
    from logstore.api.group import Group
    from logstore.api.store import Store
    from logstore.api.stream import Stream
    from logstore.schema.stream_schema import Schema

F = TypeVar("F", bound=Callable[..., Any])


class StorePath(click.Path):
    """The directory of a store, or the URI that one was shipped to."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A URI stays one: as a local path it would lose a slash."""
        if isinstance(value, str) and is_uri(value):
            return path_of(value)
        return super().convert(value, param, ctx)


# -- values that are typed -----------------------------------------------------------------------
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b|bytes?)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


class Typed(click.ParamType[Any]):
    """A value that is typed as text; what cannot be read is refused with an example."""

    def __init__(self, name: str, kind: type, read: Callable[[str], Any], said: str) -> None:
        self.name, self._kind, self._read, self._said = name, kind, read, said

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as a value; click's BadParameter says how to write one."""
        if isinstance(value, self._kind):
            return value
        try:
            return self._read(str(value).strip())
        except OptionError as error:
            self.fail(error.message, param, ctx)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no {self._said}", param, ctx)


def _length(text: str) -> timedelta:
    """A length of time with its unit, as the API reads it."""
    try:
        return read_length(text)
    except (ValueError, OverflowError) as error:
        raise OptionError(f"it {error}") from None


def _moment(text: str) -> datetime:
    """A moment, as the API reads it: of UTC where no time zone is given."""
    return moment_of(text, SYSTEM_CLOCK.now_ms(), "it")


def _size(text: str) -> int:
    """Bytes: ``10GiB`` and ``10G`` by 1024, ``10GB`` by 1000, as GNU programs have it."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    number, prefix, binary = found.groups()
    base = 1000 if text[-1] in "bB" and not binary else 1024
    power = base ** _POWERS[prefix.lower()] if prefix else 1
    return int(number) * power if number.isdigit() else int(float(number) * power)


def number(least: int, most: int | None = None) -> Typed:
    """A whole number of a range."""

    def read(text: str) -> int:
        found = int(text)
        if found < least or (most is not None and found > most):
            to = "or more" if most is None else f"to {most:,}"
            raise OptionError(f"it must be {least:,} {to}, not {found:,}")
        return found

    return Typed("N", int, read, "whole number")


def _whole_seconds(text: str) -> timedelta:
    found = _length(text)
    if found % timedelta(seconds=1):
        raise OptionError(f"it must be whole seconds, not {text!r}")
    return found


def length_at_least(least: str) -> Typed:
    """A length of time that is not shorter than one that is written so."""

    def read(text: str) -> timedelta:
        found = _length(text)
        if found < read_length(least):
            raise OptionError(f"it must be {least} or more, not {text!r}")
        return found

    return Typed("length", timedelta, read, "length of time")


WHOLE_SECONDS = Typed("length", timedelta, _whole_seconds, "length of time: give 90s, 5m")
LENGTH = Typed("length", timedelta, _length, "length of time: give 90s, 1h30m, 7d")
MOMENT = Typed("moment", datetime, _moment, "moment: give 2026-11-22T10:00Z, 2026-11-22 or now")
SIZE = Typed("size", int, _size, "size: give bytes, or 500MiB, 10GiB, 2TB")


_STORE = click.Argument(["path"], metavar="STORE", type=StorePath())


# -- what a shell completes ---------------------------------------------------------------------
SHOWN_MAX = 1000  # more do not help, and slow a shell down


def _completing(
    names: Callable[[dict[str, Any], Store[bytes]], list[bytes]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes names of the store that is typed before.

    It changes nothing, and shows no error: a shell would write it into the line being typed.
    """

    def completed(
        ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed, begin = _typed_before(ctx), incomplete.encode("utf-8", "surrogateescape")
        if typed.get("path") is None:
            return []
        with suppress(Error, OSError), reading(typed["path"]) as store:
            raw = (each for each in names(typed, store) if each.startswith(begin))
            found = (each.decode("utf-8", "replace") for each in raw)
            typeable = (each for each in found if each.isprintable() and "\ufffd" not in each)
            return [CompletionItem(each) for each in islice(typeable, SHOWN_MAX)]
        return []

    return completed


def _typed_before(ctx: click.Context) -> dict[str, Any]:
    """The parameters that stand in the line; click has read no argument of a line that ends with an
    option that lacks its value."""
    places = [each for each in ctx.command.params if isinstance(each, click.Argument)]
    found: dict[str, Any] = {}
    for place, word in zip(places, ctx.args, strict=False):
        if place.nargs == 1:
            found[str(place.name)] = place.type.convert(word, place, ctx)
    return found | {name: each for name, each in ctx.params.items() if each is not None}


def _groups(typed: dict[str, Any], store: Store[bytes]) -> list[bytes]:
    return [each.name for each in store.stream(str(typed.get("name"))).groups()]


complete_streams = _completing(lambda _typed, store: store.streams())


def _consumers(typed: dict[str, Any], store: Store[bytes]) -> list[bytes]:
    group = existing_group(store, str(typed.get("name")), str(typed.get("group_name")))
    return [each.name for each in group.consumers()]


complete_groups = _completing(_groups)
complete_consumers = _completing(_consumers)
stream_argument = click.argument("name", metavar="STREAM", shell_complete=complete_streams)
optional_stream_argument = click.argument(
    "name", metavar="[STREAM]", required=False, shell_complete=complete_streams
)
group_argument = click.argument("group_name", metavar="GROUP", shell_complete=complete_groups)
ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1)
pass_output = click.make_pass_decorator(Output, ensure=True)


def count_option(
    help: str | None = "At most this many; 0: all.", *, default: int | None = 100, least: int = 0
) -> Callable[[F], F]:
    """``-n``: how many of what a command lists."""
    return click.option(
        "-n",
        "--count",
        type=number(least),
        default=default,
        show_default=default is not None,
        help=help,
    )


def _noted(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """A callback of a flag: it sets an attribute of the output."""

    def note(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.ensure_object(Output), name, True)

    return note


_JSON = click.Option(
    ["--json"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_noted("json"),
    help="Write JSON: one object, or one a line.",
)


class CommandGroup(click.Group):
    """A command with commands below it; for an unknown one it suggests similar names."""

    context_class = HelpContext

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands below it, each with the whole first sentence of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(400)) for name, each in commands if each]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], names)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)


def command(
    name: str, *, group: click.Group | None = None, store: bool = True
) -> Callable[[Callable[..., None]], click.Command]:
    """A command that takes STORE first, unless ``store`` is false, and --json last. Its function
    gets the output before its parameters."""

    def made(function: Callable[..., None]) -> click.Command:
        found = click.command(name, cls=Command)(pass_output(function))
        found.params = [*([_STORE] if store else []), *found.params, _JSON]
        if group is not None:
            group.add_command(found)
        return found

    return made


def gathered(name: str, kind: Any) -> Callable[[F], F]:
    """Hand the parameters that are fields of a named tuple to a command as one such tuple."""

    def made(function: F) -> F:
        @wraps(function)
        def gathering(*args: Any, **given: Any) -> Any:
            fields = {each: given.pop(each) for each in kind._fields}
            return function(*args, **{name: kind(**fields)}, **given)

        return cast("F", gathering)

    return made


sync_option = click.option(
    "--sync",
    type=click.Choice(["always", "everysec", "os"]),
    default="everysec",
    show_default=True,
    help="What a crash of the machine may lose: nothing, a second, or more.",
)


no_create_option = click.option(
    "--no-create", is_flag=True, help="The store and the stream must be there."
)
yes_option = click.option(
    "--yes", is_flag=True, expose_value=False, callback=_noted("yes"), help="Do not ask."
)
raw_option = click.option(
    "--raw", is_flag=True, expose_value=False, callback=_noted("raw"),
    help="IDs alone, without the moments that they are.",
)  # fmt: skip


def confirm(output: Output, question: str) -> None:
    """Ask before a change that cannot be undone; UsageError without a terminal or ``--yes``."""
    if output.yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        output.exit_code = EXIT_USAGE
        raise UsageError(f"{question} There is no terminal to ask on: give --yes")
    click.confirm(question, abort=True, err=True)


def opened(path: Path, **how: Any) -> Store[bytes]:
    """The store, opened as ``logstore.open`` does. What opens it is loaded here, not for help."""
    how = {"sync": "everysec", **how}
    store: Store[bytes] = load("logstore.api.store").open_store(path, **how)
    return store


def reading(path: Path) -> Store[bytes]:
    """The store, to read from."""
    store: Store[bytes] = load("logstore.api.store").open_to_look(path)
    return store


def changing(path: Path) -> Store[bytes]:
    """The store, to change something in it; it must be there."""
    return opened(path, create=False, background=False)


def copying(path: Path) -> Store[bytes]:
    """The store, to make a copy of it: read only where it may not be written."""
    may_be_written = os.access(path, os.W_OK) or not path.is_dir()
    return changing(path) if may_be_written else reading(path)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM in the block is what Ctrl-C is."""
    import signal

    from logstore.signal_handlers import handled

    with handled(signal.default_int_handler, signal.SIGTERM):
        yield


def existing_group(store: Store[bytes], name: str, group_name: str) -> Group[bytes]:
    """A group that must be there: GroupNotFoundError or StreamNotFoundError if it is not."""
    stream = existing(store, name)
    group = stream.group(group_name)
    if not group.exists():
        raise GroupNotFoundError(
            "no such group: 'logstore groups' lists those there are", stream=stream.name
        )
    return group


def existing(store: Store[bytes], name: str) -> Stream[bytes]:
    """A stream that must be there: StreamNotFoundError if it is not."""
    stream = store.stream(name)
    if stream.name not in store:
        raise StreamNotFoundError(
            "no such stream: 'logstore streams' lists those there are", stream=stream.name
        )
    return stream


def with_codec(store: Store[bytes], name: str) -> Stream[Any]:
    """A stream that must be there, read and added to by the codec that is kept with it."""
    return by_codec(store, existing(store, name))


def schema_for_json(output: Output, stream: Stream[Any]) -> Schema | None:
    """The schema that the values of a stream have in JSON."""
    return stream.schema if output.json else None


def by_codec(store: Store[bytes], stream: Stream[Any]) -> Stream[Any]:
    """The stream, by the codec that is kept with it; without one nothing more is loaded."""
    from logstore.api.configuring import stream_codec
    from logstore.api.opening import opened_of

    opened = opened_of(store)
    if stream_codec(opened, stream.name) is None:
        return stream
    from logstore.api import coded

    return coded.as_kept(opened, stream.name)


def typed_fields(stream: Stream[Any], pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, Any]]:
    """Fields as somebody typed them, as what the stream takes. EntryTypeError."""
    from logstore.api.stream import Stream

    if type(stream) is Stream:
        return list(pairs)
    from logstore.api import coded

    return coded.typed_fields(stream, pairs)
