"""``logstore redis``: the group of the commands that carry streams from and to other servers.

Invariants: what carries is imported when a command runs; the package redis only for a server.
"""

from __future__ import annotations

import importlib

import click

COMMANDS = {"import": "redis_import", "export": "redis_export"}


class Commands(click.Group):
    """Finds each command in its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"logstore.tools.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


@click.group("redis", cls=Commands)
def command() -> None:
    """Carry streams from and to Redis and Valkey: RDB files, payloads, servers that run."""
