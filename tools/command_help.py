"""The help of commands: as wide as the terminal, with examples.

Invariants: no line of it is wider than the terminal but those that are to be copied; it is there
without loading what a command works with.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from logstore.loading import load

HELP_WIDTH_MAX = 80


class HelpFormatter(click.HelpFormatter):
    """Help as wide as the terminal, also where that has few columns."""

    def __init__(self) -> None:
        import shutil  # here: it takes a while to load

        columns = min(shutil.get_terminal_size().columns, HELP_WIDTH_MAX)
        super().__init__(width=max(columns - 2, 20))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names, and beside them what they are; a long name has a line of its own."""
        super().write_dl(rows, min(col_max, self.width // 2 - col_spacing), col_spacing)


class HelpContext(click.Context):
    """A call of a command, whose help has our width."""

    def make_formatter(self) -> click.HelpFormatter:
        """What help is written by."""
        return HelpFormatter()


class Command(click.Command):
    """A command, with examples in its help."""

    context_class = HelpContext

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples; no line of them is broken, so that they can be copied."""
        found = examples_of(ctx)
        if found:
            with formatter.section("Examples"):
                for each in found:
                    formatter.write(f"  $ {each}\n")
        super().format_epilog(ctx, formatter)


def examples_of(ctx: click.Context) -> tuple[str, ...]:
    """The examples of the command that is called."""
    names: list[str] = []
    at = ctx
    while at.parent is not None:
        names.insert(0, at.info_name or "")
        at = at.parent
    found: dict[str, tuple[str, ...]] = load("logstore.tools.command_examples").EXAMPLES
    return found.get(" ".join(names), ())
