"""``logstore check`` and ``recover``: verify a store; make one whole, or take out what can be read.

``check`` changes nothing, and exits with 0 for a clean store; 1 damaged; 2 wrong usage, or nothing
there that could be checked; 3 whole, but behind the last commit lies an unacknowledged tail, which
the next opening sets aside. ``recover`` does what opening does after a crash; with ``--salvage``
the store is left as it is, what can be read of it goes into a new one, and 3 says that something
is gone or not certain.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import CorruptionError, Error
from logstore.tools import options
from logstore.tools.output import EXIT_OK, EXIT_USAGE, Output

if TYPE_CHECKING:
    from logstore.recovery.salvage.run import SalvageReport

EXIT_DAMAGED = 1
EXIT_TAIL = 3


@options.command("check")
def check_store(output: Output, path: Path) -> None:
    """Verify every frame of a store, and change nothing.

    Exit code: 0 clean, 1 damaged, 2 wrong usage or no store, 3 an unacknowledged tail was found.
    """
    from logstore.recovery import check

    try:
        with output.progress("Checking") as progress:
            found = check.check(path, progress=progress, careful=True)
    except CorruptionError:
        output.exit_code = EXIT_DAMAGED
        raise
    except Error:
        output.exit_code = EXIT_USAGE
        raise
    output.exit_code = EXIT_DAMAGED if found.damage else EXIT_TAIL if found.tail_bytes else EXIT_OK
    told = found.as_dict()
    if not output.json and not found.tail_bytes:
        del told["tail_segment"], told["tail_offset"]  # it is nowhere
    concerned = [] if output.json else told.pop("concerned")
    output.report(told)
    if concerned:
        rows = [list(each.values()) for each in concerned]
        output.table(list(concerned[0]), rows, title="concerned:")


EXIT_GONE = 3


@options.command("recover")
@click.option(
    "--salvage",
    "target",
    type=click.Path(path_type=Path),
    metavar="DEST",
    help="Change nothing; take what is left into a new store in DEST, and list what is gone.",
)
def recover(output: Output, path: Path, target: Path | None) -> None:
    """Make a store whole after a crash, and tell what was found and done.

    Opening a store does the same by itself. Needed only where opening says so. Exit code 3: what
    --salvage made is not all that there was.
    """
    from logstore.recovery import recover as recovery
    from logstore.recovery.salvage import run

    if target is None:
        with output.progress("Recovering") as progress:
            found = recovery.recover(path, progress=progress)
        output.report(found.as_dict())
        return
    with output.progress("Salvaging") as progress:
        made = run.salvage(path, target, progress=progress)
    output.exit_code = output.exit_code if made.whole else EXIT_GONE
    if output.json:
        output.json_object(made.as_dict())
    else:
        _tell(output, made)


def _tell(output: Output, made: SalvageReport) -> None:
    """What was taken out; then one line for each thing that is gone, not certain, or damaged."""
    found = made.as_dict()
    lists = {name: found.pop(name) for name in ("gone", "unsure", "damage")}
    output.report(found)
    for name in ("gone", "damage"):
        if lists[name]:
            rows = [list(each.values()) for each in lists[name]]
            output.table(list(lists[name][0]), rows, title=f"{name}:")
    for text in lists["unsure"]:
        output.line(f"not certain: {text}")
