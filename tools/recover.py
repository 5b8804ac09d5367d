"""``logstore recover``: do what opening does after a crash, and say what was done.

With ``--salvage`` the store is left as it is, and what can be read of it goes into a new one.
Exit codes: 0 done; 1 an error; 3 salvaged, but something is gone or not certain.
"""

from __future__ import annotations

from pathlib import Path

import click

from logstore.recovery import recover
from logstore.recovery.salvage import run
from logstore.recovery.salvage.run import SalvageReport
from logstore.tools import options
from logstore.tools.output import Output

EXIT_GONE = 3


@click.command("recover")
@options.store_argument
@click.option(
    "--salvage", "target", type=click.Path(path_type=Path), metavar="DEST",
    help="Change nothing; take what is left into a new store in DEST, and list what is gone.",
)  # fmt: skip
@options.json_option
@options.pass_output
def command(output: Output, path: Path, target: Path | None) -> None:
    """Make a store whole after a crash, and tell what was found and done.

    Opening a store does the same by itself. Needed only where opening says so. Exit code 3: what
    --salvage made is not all that there was.
    """
    if target is None:
        with output.progress("Recovering") as progress:
            found = recover.recover(path, progress=progress)
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
