"""Prevents help without an example, an example that cannot be typed, and help that is too wide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from logstore.tools.command_examples import EXAMPLES
from logstore.tools.commands import main
from tests.tools.commands import ok, on_a_terminal


def leaves(ctx: click.Context, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The words of all commands that do something."""
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(click.Context(command, info_name=name, parent=ctx), (*words, name))
        else:
            yield " ".join([*words, name])


LEAVES = list(leaves(click.Context(main, info_name="logstore")))


@pytest.mark.parametrize("name", LEAVES)
def test_help_has_examples_of_the_command(name: str) -> None:
    shown = ok(*name.split(), "--help").partition("Examples:\n")[2]
    lines = [line.removeprefix("  $ ") for line in shown.splitlines()]
    assert lines
    assert all(
        line.split()[: 1 + len(name.split())] == ["logstore", *name.split()] for line in lines
    )
    assert all(len(line) <= 76 for line in lines)


def test_every_example_is_of_a_command() -> None:
    assert sorted(EXAMPLES) == sorted(LEAVES)


@pytest.mark.parametrize("words", ["", "add", "schedule", "dead", "redis import", "doctor"])
@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_the_terminal(words: str, columns: int) -> None:
    shown = on_a_terminal([*words.split(), "--help"], columns, 50).replace("\r", "")
    prose = shown.partition("Examples:\n")[0].splitlines()
    assert all(len(line) <= columns for line in prose if "logstore.tools.cli" not in line)
    assert "..." not in shown.partition("Commands:")[2]  # a sentence is whole


def test_a_question_that_nobody_can_answer_is_one_sentence(tmp_path: Path) -> None:
    from tests.tools.commands import invoke, pairs

    ok("add", tmp_path / "s", "a", "b=c")
    done = invoke("drop", tmp_path / "s", "a")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "logstore: Drop 'a' with 1 entry and 0 groups? There is no terminal to ask on: give --yes"
    ]
    assert len(pairs(tmp_path / "s", "a")) == 1
