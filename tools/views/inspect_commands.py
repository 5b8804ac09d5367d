"""``logstore inspect``: its commands as help shows them; ``inspected`` is loaded when one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from logstore.loading import load
from logstore.tools import command_options as options
from logstore.tools.command_output import Output

number_argument = click.argument("number", metavar="SEGMENT", type=options.number(1))


@click.group("inspect", cls=options.CommandGroup)
def inspect() -> None:
    """Show what lies in the files of a store, with offsets, also behind damage.

    Nothing is changed. Exit code: 0 all that was shown is valid, 1 it is not.
    """


def _shown() -> Any:
    return load("logstore.tools.views.inspected")


@options.command("segment", group=inspect)
@number_argument
def segment_(output: Output, path: Path, number: int) -> None:
    """Show the head of a segment and all its frames, one a line, also behind damage.

    Bytes that are no valid frame are shown as such. What stands behind the end that the next
    segment's head gives is void.
    """
    _shown().show_segment(output, path, number)


@options.command("frame", group=inspect)
@number_argument
@click.argument("offset", type=options.number(0))
@click.option("--bytes", "bytes_max", type=options.number(0), default=4096, show_default=True,
              help="At most so many of its bytes; 0: all. With --json all.")  # fmt: skip
def frame_(output: Output, path: Path, number: int, offset: int, bytes_max: int) -> None:
    """Show the frame at an offset of a segment: its head, what it says, its entries, its bytes.

    If there is no valid one, show why, and the bytes as they are.
    """
    _shown().show_frame(output, path, number, offset, bytes_max)


@options.command("stream", group=inspect)
@options.stream_argument
@options.count_option("At most this many nodes, the newest; 0: all.")
def stream(output: Output, path: Path, name: str, count: int) -> None:
    """Show what the index has of STREAM: its record, its nodes and where they lie, its groups.

    The bytes of a node are not read: 'inspect node' does that, 'inspect frame' shows them.
    """
    _shown().show_stream(output, path, name, count)


@options.command("node", group=inspect)
@options.stream_argument
@click.argument("id", metavar="ID")
def node_(output: Output, path: Path, name: str, id: str) -> None:
    """Show the node of STREAM that has ID, or would (+: the last), and each entry with its offset.

    Offsets are those in the listpack; deleted entries, which stay in it, are marked. Exit code: 1
    if its bytes are no node.
    """
    _shown().show_node(output, path, name, id)


@options.command("hint", group=inspect)
@number_argument
def hint_(output: Output, path: Path, number: int) -> None:
    """Show the hint of a sealed segment: its frames, as an index is rebuilt from them.

    Of frames with listpack bytes it has the fixed part only; appends of one node may be joined.
    """
    _shown().show_hint(output, path, number)


@options.command("checkpoint", group=inspect)
@click.argument("position", type=options.number(1), required=False)
def checkpoint_(output: Output, path: Path, position: int | None) -> None:
    """Show the checkpoint of POSITION, or the newest: which commit it follows, and its chunks.

    Without a position the others are listed, too.
    """
    _shown().show_checkpoint(output, path, position)
