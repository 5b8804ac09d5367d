"""``logstore metrics``: the numbers of a store as Prometheus reads them.

Invariants: it only reads. The numbers of the process that writes them are left out, for it has done
nothing. Prometheus gets names of streams as they are, a terminal without what would steer it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from logstore.api.showing import printable
from logstore.tools import command_options as options
from logstore.tools.command_output import Output

PROCESS = "logstore_process_"  # of this process, which has done nothing


@options.command("metrics")
@click.option("--series", "series_max", type=click.IntRange(0), default=1000, show_default=True,
              help="So many streams, and groups, have numbers of their own.")  # fmt: skip
@click.option("--stream", "patterns", multiple=True, metavar="GLOB",
              help="Only streams that match have them; repeatable.")  # fmt: skip
def metrics(output: Output, path: Path, series_max: int, patterns: tuple[str, ...]) -> None:
    """Write the numbers of STORE as Prometheus reads them: for a file of its node exporter.

    Length, lag, pending, sizes, what is reclaimable and not durable yet, free space. 'logstore
    serve --metrics-port' answers Prometheus itself.
    """
    from logstore.api.opening import opened_of
    from logstore.telemetry.gathering import exposition, gather

    with options.reading(path) as store:
        families = [
            family
            for family in gather(opened_of(store), series_max, patterns)
            if not family.name.startswith(PROCESS)
        ]
    if output.json:
        for family in families:
            for labels, number in family.samples:
                shown: Any = int(number) if math.isfinite(number) and number % 1 == 0 else number
                named = dict(zip(family.labels, labels, strict=True))
                output.json_object({"name": family.name, **named, "value": shown})
        return
    on_a_terminal = output.stream.isatty()
    for line in exposition(families).decode().splitlines():
        output.line(
            printable(line) if on_a_terminal else line
        )  # Prometheus takes names as they are
