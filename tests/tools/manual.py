"""The man page, made from what the commands say about themselves.

``python -m tests.tools.manual`` writes docs/logstore.1, which a wheel puts where ``man`` looks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from logstore.loading import load
from logstore.tools.command_help import examples_of
from logstore.tools.commands import main
from tests.house.repo import ROOT

PAGE = ROOT / "docs" / "logstore.1"
HEAD = """
########
logstore
########

------------------------------
durable streams in a directory
------------------------------

:Manual section: 1
:Manual group: logstore

SYNOPSIS
========

**logstore** [*OPTIONS*] *COMMAND* [*ARGS*]...

DESCRIPTION
===========

{help} Each command tells about itself with ``--help``; STORE is the directory of a store.

EXIT STATUS
===========

0
    It is done.
1
    An error, which is told on standard error; nothing is half done.
2
    Wrong usage.
3
    Something was left out, or found, as the command says.
130
    Interrupted.

OPTIONS
=======
"""
COMMANDS = """
COMMANDS
========
"""


def text() -> str:
    """The page as troff, as ``man`` takes it."""
    root = click.Context(main, info_name="logstore")
    lines = [HEAD.format(help=_escaped(inspect.cleandoc(main.help or ""))), *_options(main, root)]
    lines.append(COMMANDS)
    for ctx in _leaves(root):
        lines += _command(ctx)
    writer = load("docutils.writers.manpage").Writer()
    settings = {"report_level": 2, "halt_level": 2}  # a warning is an error
    made: bytes = load("docutils.core").publish_string(
        "\n".join(lines), writer=writer, settings_overrides=settings
    )
    # Pages are compared, so the version of docutils, which its remarks name, is left out.
    return re.sub(r"^\.\\\" .*\n", "", made.decode(), flags=re.MULTILINE)


def _leaves(ctx: click.Context) -> Iterator[click.Context]:
    """The commands, those of groups of commands included, in the order of the help."""
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from _leaves(below)
        else:
            yield below


def _command(ctx: click.Context) -> list[str]:
    usage = " ".join(ctx.command.collect_usage_pieces(ctx))
    head = f"{ctx.command_path} {usage}"
    examples = examples_of(ctx)
    shown = ["Examples::", "", *(f"    {each}" for each in examples), ""] if examples else []
    return ["", _escaped(head), "-" * 2 * len(head), "", _paragraphs(ctx.command.help or ""), "",
            *_options(ctx.command, ctx), *shown]  # fmt: skip


def _options(command: click.Command, ctx: click.Context) -> list[str]:
    found = [each.get_help_record(ctx) for each in command.params if isinstance(each, click.Option)]
    lines = []
    for record in found:
        if record is not None:
            lines += [f"**{_escaped(record[0])}**", f"    {_escaped(record[1]) or chr(92)}", ""]
    return lines


def _paragraphs(help_text: str) -> str:
    """A paragraph behind ``\\b`` keeps its lines, as in the help."""
    found = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(help_text)):
        kept, marked = part.replace("\b", "").strip("\n"), part.startswith("\b")
        indented = "\n".join("    " + line for line in kept.splitlines())
        found.append(f"::\n\n{indented}" if marked else _escaped(kept))
    return "\n\n".join(found)


def _escaped(words: str) -> str:
    return re.sub(r"([*`|_\\])", r"\\\1", words)


if __name__ == "__main__":
    PAGE.write_text(text())
