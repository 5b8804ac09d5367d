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
from logstore.errors import Error, GroupNotFoundError, OptionError, StreamNotFoundError
from logstore.ids import moment_of
from logstore.loading import load
from logstore.store_path import is_uri, path_of
from logstore.tools.command_output import Output

if TYPE_CHECKING:  # it loads more than a short command needs
    from logstore.api.group import Group
    from logstore.api.store import Store
    from logstore.api.stream import Stream

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


_STORE = click.Argument(["path"], metavar="STORE", type=StorePath())


# -- what a shell completes ---------------------------------------------------------------------
SHOWN_MAX = 1000  # more do not help, and slow a shell down


def _completing(
    names: Callable[[click.Context, Store[bytes]], list[bytes]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes names of the store that is typed before.

    It changes nothing, and shows no error: a shell would write it into the line being typed.
    """

    def completed(
        ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        path, begin = ctx.params.get("path"), incomplete.encode("utf-8", "surrogateescape")
        if path is None:
            return []
        with suppress(Error, OSError), reading(path) as store:
            raw = (each for each in names(ctx, store) if each.startswith(begin))
            found = (each.decode("utf-8", "replace") for each in raw)
            typeable = (each for each in found if each.isprintable() and "\ufffd" not in each)
            return [CompletionItem(each) for each in islice(typeable, SHOWN_MAX)]
        return []

    return completed


def _groups(ctx: click.Context, store: Store[bytes]) -> list[bytes]:
    return [each.name for each in store.stream(str(ctx.params.get("name"))).groups()]


complete_streams = _completing(lambda _ctx, store: store.streams())
complete_groups = _completing(_groups)
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
        type=click.IntRange(min=least),
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
        found = click.command(name)(pass_output(function))
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


def confirm(output: Output, question: str) -> None:
    """Ask before a change that cannot be undone; UsageError without a terminal or ``--yes``."""
    if output.yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes")
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
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop`` in the block, and do nothing else."""
    import signal

    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, lambda *_: stop()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM in the block is what Ctrl-C is."""
    import signal

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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


def length_at_least(least: str) -> Typed:
    """A length of time that is not shorter than one that is written so."""

    def read(text: str) -> timedelta:
        found = _length(text)
        if found < read_length(least):
            raise OptionError(f"it must be {least} or more, not {text!r}")
        return found

    return Typed("length", timedelta, read, "length of time")


LENGTH = Typed("length", timedelta, _length, "length of time: give 90s, 1h30m, 7d")
MOMENT = Typed("moment", datetime, _moment, "moment: give 2026-11-22T10:00Z, 2026-11-22 or now")
SIZE = Typed("size", int, _size, "size: give bytes, or 500MiB, 10GiB, 2TB")
