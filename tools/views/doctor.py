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
from click.shell_completion import CompletionItem

from logstore.api import showing
from logstore.errors import CorruptionError
from logstore.telemetry.doctor_findings import (
    CANNOT_OPEN,
    LEVEL_OF,
    LEVELS,
    SOON,
    WRONG,
    Finding,
    Limits,
    typed,
)
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH, SIZE
from logstore.tools.command_output import Output
from logstore.tools.wording import for_a_shell

EXIT_WRONG = 3
EXIT_ADVICE = 4  # nothing is wrong, but slow, or soon will be
STYLES = {WRONG: "bold red", "slow": "yellow", "soon": "cyan"}
INDENT = max(map(len, LEVELS)) + 2


def _checks(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """What is to be ignored; UsageError for a check that there is not."""
    for each in given:
        name = each.partition(":")[0]
        if name not in LEVEL_OF:
            known = ", ".join(LEVEL_OF)
            raise click.BadParameter(f"there is no check {name!r}, but {known}", ctx, option)
    return given


def _complete_checks(
    _ctx: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(each) for each in LEVEL_OF if each.startswith(incomplete)]


@options.command("doctor")
@click.option("--idle", type=LENGTH, default="10m", show_default=True,
              help="A consumer that was not heard of for so long is gone.")  # fmt: skip
@click.option("--watch", type=LENGTH, default="1s", show_default=True,
              help="How long to look whether a lag grows; 0: do not.")  # fmt: skip
@click.option("--large-bytes", type=SIZE, default="16MiB",
              show_default=True, help="Less space than this is not worth a word.")  # fmt: skip
@click.option("--level", type=click.Choice(LEVELS), default=SOON, show_default=True,
              help="Tell what is of this level, or worse.")  # fmt: skip
@click.option("--ignore", "ignored", metavar="CHECK[:ABOUT]", multiple=True, callback=_checks,
              shell_complete=_complete_checks,
              help="Pass over a check, or what it finds about one thing; repeatable.")  # fmt: skip
def doctor(
    output: Output,
    path: Path,
    idle: timedelta,
    watch: timedelta,
    large_bytes: int,
    level: str,
    ignored: tuple[str, ...],
) -> None:
    """Tell what is wrong with a store, or slow, or will be, and the command that mends it.

    It looks at what a store tells of itself, and not at each byte: that is 'logstore check'.

    The name of a check stands behind what it found, and what it is about in front: --ignore
    unread:jobs/mail is about one group, --ignore unread about all.

    Exit code: 0 nothing was found, 3 something is wrong, 4 nothing is, but something is slow, or
    soon will be. What --level and --ignore leave out counts for nothing.
    """
    limits = Limits(idle=idle, large_bytes=large_bytes)
    try:
        found, looked_at = _examined(path, limits, watch)
    except CorruptionError as exc:
        found, looked_at = [_closed(path, exc)], ""
    every = len(found)
    told = LEVELS[: LEVELS.index(level) + 1]
    found = [each for each in found if each.level in told and not {*ignored} & {*each.names}]
    found.sort(key=lambda each: each.rank)
    if found:
        output.exit_code = EXIT_WRONG if found[0].level == WRONG else EXIT_ADVICE
    left_out = every - len(found)
    if output.json:
        findings = [asdict(each) for each in found]
        output.json_object({"healthy": not found, "findings": findings, "left_out": left_out})
        return
    for each in found:
        _show_finding(output, each)
    if not found:
        output.line(f"nothing was found: {looked_at}")
    if left_out:
        output.line(f"left out by --level and --ignore: {showing.counted(left_out, 'finding')}")


def _examined(path: Path, limits: Limits, watch: timedelta) -> tuple[list[Finding], str]:
    """The findings, and a line about what was examined."""
    from logstore.telemetry import examination

    # Read-only, so the log is read: the index itself is examined, too.
    with options.opened(path, readonly=True, create=False) as store:
        examined = examination.examine(store, path, limits)
        found = examination.findings(examined)
        if watch and examined.lagging:
            time.sleep(watch.total_seconds())
            found += examination.growth(examined, examination.again(examined), watch)
    return found, examination.looked_at(examined)


def _closed(path: Path, exc: CorruptionError) -> Finding:
    """The finding about a store that cannot be opened."""
    return Finding(
        CANNOT_OPEN,
        WRONG,
        "",
        f"the store cannot be opened: {for_a_shell(str(exc))}; what can be read of it is taken out "
        "into a new one",
        typed("recover", str(path), "--salvage", f"{path}-rescued"),
    )


def _show_finding(output: Output, each: Finding) -> None:
    """A finding: its level, what it is about, what is wrong, and which check says so."""
    from rich.text import Text

    about = f"{each.about}: " if each.about else ""
    first, *more = output.broken(f"{about}{each.what} ({each.check})", less=INDENT)
    bold = min(len(about), len(first))
    line = Text.assemble(
        (each.level.ljust(INDENT), STYLES[each.level]), (first[:bold], "bold"), first[bold:]
    )
    output.draw(line)
    for text in more:
        output.line(" " * INDENT + text)
    if each.command:  # a line of its own, not folded: it can be copied
        output.line(f"{' ' * INDENT}$ {each.command}")
