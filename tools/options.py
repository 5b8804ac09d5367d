"""What the commands share: their common options, and how they open a store.

Invariants: a command that only reads never makes a store, and changes nothing in one. What opens a
store is loaded when one is opened, so that help is there at once: a module of a command imports at
its top what its options need, and in its functions what does its work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logstore.errors import GroupNotFoundError, StreamNotFoundError
from logstore.loading import load
from logstore.tools.output import Output
from logstore.uri_path import is_uri, path_of

if TYPE_CHECKING:  # it loads more than a short command needs
    from logstore.api.group import Group
    from logstore.api.store import Store
    from logstore.api.stream import Stream
    from logstore.options import Sync

F = TypeVar("F", bound=Callable[..., Any])

STORE_HELP = "STORE is the directory of a store."


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


def completed_by(name: str) -> Callable[..., Any]:
    """A function of ``completion``, for ``shell_complete=``; loaded when a shell asks."""

    def found(*words: Any) -> Any:
        return getattr(load("logstore.tools.completion"), name)(*words)

    return found


stream_argument = click.argument("name", metavar="STREAM", shell_complete=completed_by("streams"))
optional_stream_argument = click.argument(
    "name", metavar="[STREAM]", required=False, shell_complete=completed_by("streams")
)
group_argument = click.argument(
    "group_name", metavar="GROUP", shell_complete=completed_by("groups")
)
pass_output = click.make_pass_decorator(Output, ensure=True)


def _set_json(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).json = True


_JSON = click.Option(
    ["--json"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_set_json,
    help="Write JSON: one object, or one a line.",
)


def command(
    name: str, *, group: click.Group | None = None, store: bool = True
) -> Callable[[Callable[..., None]], click.Command]:
    """A command that takes STORE first, unless it has no ``store``, and --json last. Its function
    gets the output before its parameters."""

    def made(function: Callable[..., None]) -> click.Command:
        found = click.command(name)(pass_output(function))
        found.params = [*([_STORE] if store else []), *found.params, _JSON]
        if group is not None:
            group.add_command(found)
        return found

    return made


sync_option = click.option(
    "--sync",
    type=click.Choice(["always", "everysec", "os"]),
    default="everysec",
    show_default=True,
    help="What a crash of the machine may lose: nothing, a second, or more.",
)


def interval(command: F) -> F:
    """The arguments START and END."""
    command = click.argument("end", default="+")(command)
    return click.argument("start", default="-")(command)


def moments(command: F) -> F:
    """The options --since and --until."""
    command = click.option("--until", help="Up to this moment, likewise; of a day all of it.")(
        command
    )
    return click.option(
        "--since", help="From this moment on: -1h, 2026-01-31, 2026-01-31T12:00Z (UTC)."
    )(command)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; UsageError where nobody can be asked, without ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes")
    click.confirm(question, abort=True, err=True)


def opened(
    path: Path,
    *,
    create: bool = True,
    readonly: bool = False,
    background: bool = True,
    sync: Sync = "everysec",
) -> Store[bytes]:
    """The store, opened as ``logstore.open`` does; help needs no store, and loads none."""
    store: Store[bytes] = load("logstore.api.open_store").open_store(
        path, create=create, readonly=readonly, background=background, sync=sync
    )
    return store


def reading(path: Path) -> Store[bytes]:
    """The store, to read from."""
    store: Store[bytes] = load("logstore.api.open_store").open_to_look(path)
    return store


def changing(path: Path) -> Store[bytes]:
    """The store, to change something in it; it must be there."""
    return opened(path, create=False, background=False)


def existing_group(stream: Stream[bytes], name: str) -> Group[bytes]:
    """A group that must be there: GroupNotFoundError if it is not."""
    group = stream.group(name)
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
