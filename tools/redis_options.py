"""What ``logstore redis import`` and ``export`` share: options, and how a server is reached.

Invariants: a password is read from a file or stands in the address; no message tells it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import OptionError
from logstore.tools.options import F

if TYPE_CHECKING:
    from logstore.transfer.selection import Policy, Wanted
    from logstore.transfer.server import Server

SCHEMES = ("redis://", "rediss://", "unix://")
MIB = 1 << 20


def shared(command: F) -> F:
    """The options that both commands have."""
    for option in (
        click.option("--dump-max", type=click.IntRange(0, 512), default=128, show_default=True,
                     help="MiB of a stream that go as one payload; larger ones go by pages."),
        click.option("--password-file", type=click.Path(exists=True, dir_okay=False,
                     path_type=Path), help="A file with the server's password."),
        click.option("--prefix", default="", help="Stands before every name on the other side."),
        click.option("--skip", is_flag=True, help="Keep what has the name there already."),
        click.option("--replace", is_flag=True, help="Replace what has the name there already."),
        click.option("--stream", "patterns", multiple=True, metavar="PATTERN",
                     help="Only these: * ? [a-c], as of KEYS; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return command


def is_server(target: str) -> bool:
    """Whether an argument is the address of a server, not a path."""
    return target.startswith(SCHEMES)


def wanted(patterns: tuple[str, ...], prefix: str, *, replace: bool, skip: bool) -> Wanted:
    """What is to be carried."""
    from logstore.transfer.selection import Wanted

    if replace and skip:
        raise click.UsageError("give one of --replace and --skip")
    policy: Policy = "replace" if replace else "skip" if skip else "refuse"
    return Wanted([_bytes(each) for each in patterns], _bytes(prefix), policy)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def server(address: str, password_file: Path | None) -> Server:
    """The server at an address."""
    from logstore.transfer.server import Server

    password = None
    if password_file is not None:
        password = password_file.read_text().strip("\r\n")
        if not password:
            raise OptionError(f"{password_file} holds no password")
    return Server(address, password=password)
