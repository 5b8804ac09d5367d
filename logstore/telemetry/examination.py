"""An examination of a store by all rules of the doctor: for ``logstore doctor`` and the web view.

Invariants: nothing is changed. What rules ask for more than once is read once. Whether a lag grows
is told by two looks, between which the caller waits as long as it likes.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from logstore.api import showing
from logstore.api.info import StreamSummary, living_pins, summaries
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.compaction.usage import usage
from logstore.telemetry import doctor_rules
from logstore.telemetry.doctor_findings import Examined, Finding, Limits


def examine(store: Store[bytes], path: Path, limits: Limits) -> Examined:
    """Read of a store what the rules ask for."""
    opened = opened_of(store)
    engine = opened.engine()
    streams = list(summaries(opened, store.streams()))
    used = usage(engine, living_pins(engine))
    return Examined(store, path, store.info(), used, streams, limits)


def findings(examined: Examined) -> list[Finding]:
    """What all rules find that need one look."""
    return [each for rule in doctor_rules.RULES for each in rule(examined)]


def again(examined: Examined) -> list[StreamSummary]:
    """The second look, at streams with a group that lagged at the first."""
    names = [each.name for each in examined.lagging]
    return list(summaries(opened_of(examined.store), names))


def growth(examined: Examined, later: list[StreamSummary], span: timedelta) -> list[Finding]:
    """What two looks find, the second one ``span`` after the first."""
    return list(doctor_rules.growing(examined, examined.lagging, later, span))


def looked_at(examined: Examined) -> str:
    """A line about what was examined."""
    groups = sum(len(each.groups) for each in examined.streams)
    return (
        f"{showing.counted(len(examined.streams), 'stream')}, {showing.counted(groups, 'group')}, "
        f"{showing.counted(len(examined.usage.segments), 'segment')} looked at"
    )
