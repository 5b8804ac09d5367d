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
TELL_LOST = (
    "states", "kills", "kills_in_the_lane", "syscalls", "syscalls_of_lane_and_ends", "power",
    "failing_fsync", "faults",
)  # fmt: skip
IS_LOST, MAY_BE = ("lost", "half_there", "wrong_values"), ("everysec", "_os")
# Words, topic, and how its figures are told, in the order of the table.
_CRASHES = (
    ("states explored", "states",
     "{distinct} distinct, of {made} made; {stores} different stores opened"),
    ("kills of writers", "kills",
     ("{kills}: {in_a_commit} in a commit, {in_compaction_checkpoint_close} in compaction,"
      " checkpoint, close; {acknowledged_operations} operations acknowledged")),
    ("kills of writers with a lane", "kills_in_the_lane",
     ("{kills}: {in_the_lane} in the lane, {in_the_group_lane} of them in a group's read or ack,"
      " {while_the_index_follows} while the index follows; by the lane {lane_adds} entries added,"
      " {lane_reads} delivered, {lane_acks} acked")),
    ("system calls", "syscalls", "{kills} kills, {errors} errors at {kinds_of_call} kinds of call"),
    ("of the lane, a close, full compaction", "syscalls_of_lane_and_ends",
     "{kills} kills, {errors} errors at {kinds_of_call} kinds of call"),
    ("power cuts", "power", "{cuts}, {cuts_in_recovery} of them in recovery, on {file_systems}"),
)  # fmt: skip
_INJECTED = (
    ("faults injected", "faults", "{injected}; {typed} raised, all typed, {survived} did without"),
    ("syncs that really failed", "failing_fsync", "{syncs_failed}"),
    ("corruptions injected", "corruption", "{injected}"),
    ("of them detected", "corruption",
     "{detected}; wrong values read {wrong_values}; {salvaged} stores salvaged"),
    ("bits of frames flipped", "corruption: bits of frames", "{injected}, detected {detected}"),
    ("pages of an index in use damaged", "corruption of index pages under a running store",
     ("{injected} runs: {right} reads right, {refused} refused, {absent} absent,"
      " {wrong_values} wrong; processes ended {processes_ended}")),
)  # fmt: skip
_MAY_BE_LOST = (
    ("  under everysec, power cuts", "power",
     ("{acknowledged_lost_everysec} of {acknowledged_everysec}, the oldest"
      " {everysec_window_s} s before the cut; longest sync {longest_sync_s} s")),
    ("  under os, power cuts", "power", "{acknowledged_lost_os} of {acknowledged_os}"),
)  # fmt: skip
_TOOK = {"next": "of those that go on", "locked": "when it held LOCK",
         "opened": "all killed, opened"}  # fmt: skip
_TIMES = (
    *((f"take over, {what}", "kills",
       f"median {{{which}_median_ms}} ms, max {{{which}_max_ms}} ms")
      for which, what in _TOOK.items()),
    ("opened after a power cut", "power", "median {open_median_ms} ms, max {open_max_ms} ms"),
    ("recovery per GiB of log", "recovery_time",
     ("{s_per_gib_with_hints} s with hints, {s_per_gib_without} s without"
      " (log of {log_bytes} bytes)")),
    ("recovery per million nodes", "recovery_time",
     ("{s_per_million_nodes_with_hints} s with hints, {s_per_million_nodes_without} s"
      " without ({nodes} nodes)")),
)  # fmt: skip
_KINDS = {
    "torn": "torn", "zeros": "zeros", "0xff": "0xFF", "stale": "old bytes",
    "unfinished": "whole frames of commits that are not whole", "void": "commits behind a hole",
}  # fmt: skip
_TAILS = (
    ("tails set aside", "power", "{tails}, {made_void} made void by a new segment"),
    *((f"  bytes dropped, {words}", "power", f"{{dropped_{kind}_bytes}}")
      for kind, words in _KINDS.items()),
)  # fmt: skip
_COMPARED = (
    ("interleavings", "interleavings",
     "{points} points, {pairs} pairs, {runs} runs, {refused_in_time} refused in time"),
    ("numbers that info prints", "model", "{steps} steps, {numbers_compared} numbers compared"),
)  # fmt: skip
# Its run is too long to be a part: without figures it has no row.
_MUTANTS = ("mutants", "mutants", "{killed} killed of {tried}, {survived} survived")
# What torture is to come to; with less it says so.
LEAST = {
    ("states", "distinct"): 10_000, ("kills", "kills"): 2_000, ("power", "cuts"): 500,
    ("kills_in_the_lane", "in_the_group_lane"): 300,
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
    before = (*_CRASHES, *_INJECTED)
    behind = (*_MAY_BE_LOST, *_TIMES, *_TAILS, *_COMPARED, *[_MUTANTS] * ("mutants" in found))
    known = {topic for _, topic, _ in (*before, *behind)}
    made = [_row(found, *each) for each in before]
    made.append(("acknowledged entries lost", _lost(found)))
    made += [_row(found, *each) for each in behind]
    for topic, its in sorted(found.items()):
        if topic not in known:
            made.append((topic, ", ".join(f"{_words(key)} {_text(its[key])}" for key in its)))
    return made


def short(found: All) -> list[str]:
    """Where there was less than torture is to come to."""
    return [
        f"{topic}: {_text(its.get(key, 0))} {_words(key)}, fewer than {least:,}"
        for (topic, key), least in LEAST.items()
        if (its := found.get(topic)) is not None and float(its.get(key, 0)) < least
    ]


def _lost(found: All) -> str:
    """Where nothing may be lost; who recorded nothing is told."""
    missing = [topic for topic in TELL_LOST if topic not in found]
    if len(missing) == len(TELL_LOST):
        return NOT_RUN
    counted = f"{lost(found):,}"
    if missing:
        counted += f" (not counted, for it recorded nothing: {', '.join(missing)})"
    return counted


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
    table = Table("what", "figure", title="torture", box=None)
    for what, figure in rows(told["figures"]):
        table.add_row(Text(what), Text(figure))
    console.print()
    console.print(table)
    console.print()
    for name, part in told["parts"].items():
        failed = len(part["failed"])
        console.print(
            f"{name}, {part['times']} times: {part['passed']} passed, {failed} failed, "
            f"{len(part['skipped'])} skipped, {part['seconds']:,} s beside others on "
            f"{part['others']} processors",
            markup=False,
        )
        for test in part["failed"]:
            console.print(f"  failed: {test}", markup=False)
        for test, why in part["skipped"].items():
            console.print(f"  skipped: {test}: {why}", markup=False)
    if told["not_run"]:
        console.print(f"not run to the end: {', '.join(told['not_run'])}", markup=False)
    for each in short(told["figures"]):
        console.print(f"short: {each}", markup=False)
    failed = any(part["failed"] for part in told["parts"].values()) or told["acknowledged_lost"]
    verdict = "FAILED: see above, and build/torture/*.log" if failed else "nothing failed"
    console.print("whole" if told["whole"] else verdict)
