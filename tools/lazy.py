"""A group of commands, each in a module of its own that is loaded when the command is used."""

from __future__ import annotations

from typing import Any

import click

from logstore.loading import load


class Lazy(click.Group):
    """Finds commands in their modules: ``modules`` maps a command's name to its module's."""

    def __init__(self, *args: Any, modules: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in self._modules:
            return None
        module = load(f"logstore.tools.{self._modules[cmd_name]}")
        command: click.Command = module.command
        return command
