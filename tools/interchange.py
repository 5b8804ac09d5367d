"""``logstore redis``: the group of the commands that carry streams from and to other servers.

Invariants: what carries is imported when a command runs; the package redis only for a server.
"""

from __future__ import annotations

import click

from logstore.tools.lazy import Lazy

COMMANDS = {"import": "redis_import", "export": "redis_export"}


@click.group("redis", cls=Lazy, modules=COMMANDS)
def command() -> None:
    """Carry streams from and to Redis and Valkey: RDB files, payloads, servers that run."""
