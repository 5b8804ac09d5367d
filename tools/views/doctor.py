"""``logstore doctor``: what is wrong with a store, or slow, in plain words, and what mends it.

Invariants: nothing is changed. A store that cannot be opened is a finding, a directory without a
store is an error. The exit code says whether there is a finding. A finding says in plain words what
is wrong and what follows from it, and names a command that can be typed as it is, if there is one.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from logstore.api import showing
from logstore.errors import CorruptionError
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output
from logstore.tools.views.doctor_findings import LEVELS, WRONG, Examined, Finding, Limits, typed
from logstore.tools.wording import for_a_shell

EXIT_FOUND = 3
STYLES = {WRONG: "bold red", "slow": "yellow", "soon": "cyan"}
DEFAULTS = Limits()


@options.command("doctor")
@click.option("--idle", type=LENGTH, default="10m", show_default=True,
              help="A consumer that was not heard of for so long is gone.")  # fmt: skip
@click.option("--watch", type=LENGTH, default="1s", show_default=True,
              help="How long to look whether a lag grows; 0: do not.")  # fmt: skip
@click.option("--large-bytes", type=click.IntRange(0), default=DEFAULTS.large_bytes,
              show_default=True, help="Less space than this is not worth a word.")  # fmt: skip
def doctor(output: Output, path: Path, idle: timedelta, watch: timedelta, large_bytes: int) -> None:
    """Tell what is wrong with a store, or slow, or will be, and the command that mends it.

    It looks at what a store tells of itself, and not at each byte: that is 'logstore check'.

    Exit code: 0 nothing was found, 3 something was.
    """
    limits = Limits(idle=idle, large_bytes=large_bytes)
    try:
        found, looked_at = _examined(path, limits, watch)
    except CorruptionError as exc:
        found, looked_at = [_closed(path, exc)], ""
    found.sort(key=lambda each: (LEVELS.index(each.level), each.about))
    output.exit_code = EXIT_FOUND if found else 0
    if output.json:
        output.json_object({"healthy": not found, "findings": [asdict(each) for each in found]})
        return
    for each in found:
        _show_finding(output, each)
    if not found:
        output.line(f"nothing was found: {looked_at}")


def _examined(path: Path, limits: Limits, watch: timedelta) -> tuple[list[Finding], str]:
    """The findings, and a line about what was examined."""
    from logstore.api.info import living_pins, summaries
    from logstore.api.opening import opened_of
    from logstore.compaction.usage import usage
    from logstore.tools.views import doctor_rules

    # Read-only, so the log is read: the index itself is examined, too.
    with options.opened(path, readonly=True, create=False) as store:
        opened = opened_of(store)
        engine = opened.engine()
        first = list(summaries(opened, store.streams()))
        used = usage(engine, living_pins(engine))
        examined = Examined(store, path, store.info(), used, first, limits)
        found = [each for rule in doctor_rules.RULES for each in rule(examined)]
        lagging = [each for each in first if each.lag]
        if lagging and watch:
            time.sleep(watch.total_seconds())
            second = list(summaries(opened, [each.name for each in lagging]))
            found += doctor_rules.growing(examined, lagging, second, watch)
    groups = sum(len(each.groups) for each in first)
    return found, (
        f"{showing.counted(len(first), 'stream')}, {showing.counted(groups, 'group')}, "
        f"{showing.counted(len(used.segments), 'segment')} looked at"
    )


def _closed(path: Path, exc: CorruptionError) -> Finding:
    """The finding about a store that cannot be opened."""
    return Finding(
        "cannot-open",
        WRONG,
        "",
        f"the store cannot be opened: {for_a_shell(str(exc))}; what can be read of it is taken out "
        "into a new one",
        typed("recover", str(path), "--salvage", f"{path}-rescued"),
    )


def _show_finding(output: Output, each: Finding) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=max(map(len, LEVELS)))
    grid.add_column(overflow="fold")
    about = Text(f"{each.about}: " if each.about else "", "bold")
    grid.add_row(Text(each.level, STYLES[each.level]), Text.assemble(about, each.what))
    output.draw(grid)
    if each.command:  # a line of its own, not folded: it can be copied
        output.line(f"       $ {each.command}")
