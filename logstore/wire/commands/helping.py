"""HELP of commands that have subcommands: made of the table, so that it tells what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logstore.wire.command_words import Words
from logstore.wire.reply import Simple
from logstore.wire.session import Session
from logstore.wire.steps import Step, Tell
from logstore.wire.table import Command


def help_of(
    name: str, parts: Sequence[Command], arguments: Mapping[str, str] | None = None,
    *, since: str = "6.2.0", categories: tuple[str, ...] = ("slow",),
) -> Command:  # fmt: skip
    """The subcommand HELP of a command; ``arguments``: by subcommand, what stands behind it."""
    lines = [f"{name.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for each in parts:
        sub = each.name.partition("|")[2]
        lines += [f"{sub.upper()} {(arguments or {}).get(sub, '')}".rstrip(), f"    {each.summary}"]
    lines += ["HELP", "    Print this help."]
    told = [Simple(line.encode()) for line in lines]

    def parse(_session: Session, _words: Words) -> Step:
        return Tell(lambda: told)

    return Command(
        f"{name}|help", 2, parse, ("loading", "stale"), since=since, complexity="O(1)",
        group=parts[0].group, summary="Tells the subcommands.", categories=categories,
    )  # fmt: skip
