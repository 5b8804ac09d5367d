"""``logstore check``: verify a store without changing it.

Exit codes for scripts: 0 clean; 1 damaged; 2 wrong usage, or nothing there that could be checked;
3 whole, but behind the last commit lies an unacknowledged tail, which the next opening sets aside.
"""

from __future__ import annotations

from pathlib import Path

import click

from logstore.errors import CorruptionError, Error
from logstore.recovery import check
from logstore.tools import options
from logstore.tools.output import EXIT_OK, EXIT_USAGE, Output

EXIT_DAMAGED = 1
EXIT_TAIL = 3


@click.command("check")
@options.store_argument
@options.json_option
@options.pass_output
def command(output: Output, path: Path) -> None:
    """Verify every frame of a store, and change nothing.

    Exit code: 0 clean, 1 damaged, 2 wrong usage or no store, 3 an unacknowledged tail was found.
    """
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
    output.report(found.as_dict())
