"""The one table of ``make torture``, from the figures that its parts recorded; pure but for `show`.

Invariants: a figure that was not recorded is told as such, never as 0; a topic without a row of its
own is told as it was recorded, so that nothing is left out. Knows only what the tests record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

Figures: TypeAlias = Mapping[str, float | str]
All: TypeAlias = Mapping[str, Figures]
Row: TypeAlias = tuple[str, str]

NOT_RUN = "not recorded"
# These tell what was lost. Each key that speaks of it counts, whatever the topic; under `everysec`
# and `os` a power cut and a sync that fails may take what was not synced.
TELL_LOST = ("states", "kills", "syscalls", "power", "failing_fsync", "faults")
IS_LOST, MAY_BE = ("lost", "half_there", "wrong_values"), ("everysec", "_os")
TAILS = {
    "torn": "torn", "zeros": "zeros", "0xff": "0xFF", "stale": "old bytes",
    "unfinished": "whole frames of commits that are not whole", "void": "commits behind a hole",
}  # fmt: skip
TOOK = {
    "next": "of those that go on", "locked": "when it held LOCK", "opened": "all killed, opened"
}  # fmt: skip


def lost(found: All) -> int:
    """Acknowledged and gone, half there, or wrong, where nothing may be: one is too many."""
    return sum(
        int(value)
        for its in found.values()
        for key, value in its.items()
        if any(each in key for each in IS_LOST) and not any(each in key for each in MAY_BE)
    )


def rows(found: All) -> list[Row]:
    """The table."""
    known = {
        "states", "kills", "syscalls", "power", "failing_fsync", "recovery_time", "faults",
        "corruption", "corruption: bits of frames", "interleavings", "model", "mutants",
        "corruption of index pages under a running store",
    }  # fmt: skip
    made = [
        *_crashes(found), *_injected(found), *_losses(found), *_times(found), *_tails(found),
        *_compared(found),
    ]  # fmt: skip
    for topic, its in sorted(found.items()):
        if topic not in known:
            made.append((topic, ", ".join(f"{_words(key)} {_text(its[key])}" for key in its)))
    return made


def _crashes(found: All) -> list[Row]:
    return [
        _row(found, "states explored", "states",
             "{distinct} distinct, of {made} made; {stores} different stores opened"),
        _row(found, "kills of writers", "kills",
             "{kills}: {in_a_commit} in a commit, {in_compaction_checkpoint_close} in compaction,"
             " checkpoint, close; {acknowledged_operations} operations acknowledged"),
        _row(found, "system calls", "syscalls",
             "{kills} kills, {errors} errors at {kinds_of_call} kinds of call"),
        _row(found, "power cuts", "power",
             "{cuts}, {cuts_in_recovery} of them in recovery, on {file_systems}"),
    ]  # fmt: skip


def _injected(found: All) -> list[Row]:
    return [
        _row(found, "faults injected", "faults",
             "{injected}; {typed} raised, all typed, {survived} did without"),
        _row(found, "syncs that really failed", "failing_fsync", "{syncs_failed}"),
        _row(found, "corruptions injected", "corruption", "{injected}"),
        _row(found, "of them detected", "corruption",
             "{detected}; wrong values read {wrong_values}; {salvaged} stores salvaged"),
        _row(found, "bits of frames flipped", "corruption: bits of frames",
             "{injected}, detected {detected}"),
        _row(found, "pages of an index in use damaged",
             "corruption of index pages under a running store",
             "{injected} runs: {right} reads right, {refused} refused, {absent} absent,"
             " {wrong_values} wrong; processes ended {processes_ended}"),
    ]  # fmt: skip


def _losses(found: All) -> list[Row]:
    """Where nothing may be lost, then where something may."""
    missing = [topic for topic in TELL_LOST if topic not in found]
    counted = f"{lost(found):,}" if len(missing) < len(TELL_LOST) else NOT_RUN
    if missing and len(missing) < len(TELL_LOST):
        counted += f" (not counted, for it recorded nothing: {', '.join(missing)})"
    return [
        ("acknowledged entries lost", counted),
        _row(found, "  under everysec, power cuts", "power",
             "{acknowledged_lost_everysec} of {acknowledged_everysec}, the oldest"
             " {everysec_window_s} s before the cut; longest sync {longest_sync_s} s"),
        _row(found, "  under os, power cuts", "power",
             "{acknowledged_lost_os} of {acknowledged_os}"),
    ]  # fmt: skip


def _times(found: All) -> list[Row]:
    made = [
        _row(found, f"take over, {what}", "kills",
             f"median {{{which}_median_ms}} ms, max {{{which}_max_ms}} ms")
        for which, what in TOOK.items()
    ]  # fmt: skip
    return [
        *made,
        _row(found, "opened after a power cut", "power",
             "median {open_median_ms} ms, max {open_max_ms} ms"),
        _row(found, "recovery per GiB of log", "recovery_time",
             "{s_per_gib_with_hints} s with hints, {s_per_gib_without} s without"
             " (log of {log_bytes} bytes)"),
        _row(found, "recovery per million nodes", "recovery_time",
             "{s_per_million_nodes_with_hints} s with hints, {s_per_million_nodes_without} s"
             " without ({nodes} nodes)"),
    ]  # fmt: skip


def _tails(found: All) -> list[Row]:
    return [
        _row(found, "tails set aside", "power", "{tails}, {made_void} made void by a new segment"),
        *(
            _row(found, f"  bytes dropped, {words}", "power", f"{{dropped_{kind}_bytes}}")
            for kind, words in TAILS.items()
        ),
    ]


def _compared(found: All) -> list[Row]:
    made = [
        _row(found, "interleavings", "interleavings",
             "{points} points, {pairs} pairs, {runs} runs, {refused_in_time} refused in time"),
        _row(found, "numbers that info prints", "model",
             "{steps} steps, {numbers_compared} numbers compared"),
    ]  # fmt: skip
    if "mutants" in found:
        made.append(
            _row(found, "mutants", "mutants", "{killed} killed of {tried}, {survived} survived")
        )
    return made


def _row(found: All, what: str, topic: str, words: str) -> Row:
    its = found.get(topic)
    if its is None:
        return what, NOT_RUN
    return what, words.format_map(_Told({key: _text(value) for key, value in its.items()}))


class _Told(dict[str, str]):
    """A figure that its topic has not recorded, such as times of which there were none."""

    def __missing__(self, key: str) -> str:
        return f"({_words(key)}: {NOT_RUN})"


def _text(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int | float) else value


def _words(key: str) -> str:
    return key.replace("_", " ")


def show(told: Mapping[str, Any]) -> None:
    """Print the table, what each part took, and what was skipped or failed."""
    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    table = Table("what", "figure", title=f"torture, {told['times']} times", box=None)
    for what, figure in rows(told["figures"]):
        table.add_row(Text(what), Text(figure))
    console.print()
    console.print(table)
    console.print()
    for name, part in told["parts"].items():
        failed = len(part["failed"])
        console.print(
            f"{name}: {part['passed']} passed, {failed} failed, {len(part['skipped'])} skipped, "
            f"{part['seconds']} s",
            markup=False,
        )
        for test in part["failed"]:
            console.print(f"  failed: {test}", markup=False)
        for test, why in part["skipped"].items():
            console.print(f"  skipped: {test}: {why}", markup=False)
    if told["not_run"]:
        console.print(f"interrupted: {', '.join(told['not_run'])} not run", markup=False)
    failed = any(part["failed"] for part in told["parts"].values()) or told["acknowledged_lost"]
    verdict = "FAILED: see above, and build/torture/*.log" if failed else "nothing failed"
    console.print("whole" if told["whole"] else verdict)
