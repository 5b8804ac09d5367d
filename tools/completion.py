"""``logstore completion``: what makes a shell complete the words of the commands with the tab key.

Streams and groups are completed, too, from the store that was typed before. Invariants: completing
changes nothing, and tells no error: a shell would show it in the line that is being typed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from logstore.errors import Error, UsageError
from logstore.tools import options
from logstore.tools.output import Output

if TYPE_CHECKING:
    from logstore.api.store import Store

PROGRAM = "logstore"
VARIABLE = "_LOGSTORE_COMPLETE"  # by which the script asks: click's name for this program
SHELLS = ["bash", "zsh", "fish"]
SHOWN_MAX = 1000  # more are no help, and a shell is slow with them


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@options.pass_output
def command(output: Output, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, paths and streams.

    \b
    bash  logstore completion bash > ~/.local/share/bash-completion/completions/logstore
    zsh   logstore completion zsh > "${fpath[1]}/_logstore"
    fish  logstore completion fish > ~/.config/fish/completions/logstore.fish
    """
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:  # a later click may do without a shell
        raise UsageError(f"this version of click does not know {shell}")
    for line in found(root, {}, PROGRAM, VARIABLE).source().splitlines():
        output.line(line)


def streams(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The streams of the store that was typed before, as far as their names begin so."""
    return _completed(ctx, incomplete, lambda store: store.streams())


def groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The groups of the stream that was typed before, likewise."""
    name = str(ctx.params.get("name"))
    return _completed(ctx, incomplete, lambda store: [x.name for x in store.stream(name).groups()])


def _completed(
    ctx: click.Context, incomplete: str, look: Callable[[Store[bytes]], list[bytes]]
) -> list[CompletionItem]:
    """At most ``SHOWN_MAX`` of the names that are found; none without a store that can be read."""
    from logstore.api.open_store import open_to_look

    path, begin = ctx.params.get("path"), incomplete.encode("utf-8", "surrogateescape")
    if path is None:
        return []
    with suppress(Error, OSError), open_to_look(path) as store:
        names = (name.decode("utf-8", "replace") for name in look(store) if name.startswith(begin))
        typeable = (name for name in names if name.isprintable() and "\ufffd" not in name)
        return [CompletionItem(name) for name in islice(typeable, SHOWN_MAX)]
    return []
