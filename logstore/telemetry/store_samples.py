"""The numbers of a store, looked at again and again, and what they say together: rates and trends.

Invariants: it only reads, and looks so seldom that it needs at most ``CPU_SHARE`` of a core. Rates
are differences between two looks, so the first look has none. What is kept of earlier looks are
the rates of those that were not idle all the time: an idle store costs nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from logstore.api.store import Store

CPU_SHARE = 0.018  # below 2 %, with the garbage collector
LOADING_LOOKS = 2
SERIES_MAX = 10_000
TREND_LOOKS = 60
Labels: TypeAlias = tuple[str, ...]  # a stream, or a stream and a group; empty: the store
Numbers: TypeAlias = dict[str, dict[Labels, float]]
ADDS, READS, ACKS = "stream_entries_added", "group_read", "group_acked"
WHOLE: Labels = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers at one time, by their names without ``logstore_``, then by their labels."""

    at_s: float
    numbers: Numbers

    def one(self, name: str) -> float:
        """A number of the store."""
        return self.numbers[name].get(WHOLE, 0.0)

    def of(self, name: str) -> Mapping[Labels, float]:
        """A number of each stream, or group."""
        return self.numbers[name]


def _taken(store: Store[bytes], patterns: tuple[str, ...]) -> Sample:
    from logstore.api.opening import opened_of
    from logstore.telemetry.gathering import gather

    numbers: Numbers = {
        family.name.removeprefix("logstore_"): dict(family.samples)
        for family in gather(opened_of(store), SERIES_MAX, patterns)
    }
    # What was read and is pending no more: acked, or dropped, or a dead letter.
    pending = numbers["group_pending"]
    numbers[ACKS] = {at: read - pending[at] for at, read in numbers[READS].items()}
    return Sample(time.monotonic(), numbers)


def rate_of(then: Sample, now: Sample, before: float, after: float) -> float:
    """How much a number grows in a second; 0 where the samples are one."""
    return (after - before) / (now.at_s - then.at_s) if now.at_s > then.at_s else 0.0


def rates_of(then: Sample, now: Sample, name: str) -> dict[Labels, float]:
    """The growth a second of a number of each stream or group; empty for the first sample."""
    if now is then:
        return {}
    before = then.numbers[name]
    return {
        at: max(0.0, rate_of(then, now, before[at], value))
        for at, value in now.numbers[name].items()
        if at in before
    }


def per_s(rate: float | None) -> str:
    """A rate, with a digit behind the point where it is small."""
    if rate is None:
        return ""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


class Watch:
    """Looks at a store: the last two samples, and the rates of those before."""

    def __init__(
        self,
        store: Store[bytes],
        interval_s: float,
        patterns: tuple[str, ...],
        first_s: float | None = None,
    ) -> None:
        """Look at once.

        Args:
            store: an open store.
            interval_s: how often to look.
            patterns: globs of streams; empty: any.
            first_s: how soon after the first look the second one is due; None: as the others.
        """
        self._store, self._interval_s, self._patterns = store, interval_s, patterns
        self._first_s = interval_s if first_s is None else min(first_s, interval_s)
        self._looks = 0
        self._due_s: float | None = None
        self._trends: dict[str, dict[Labels, deque[float]]] = {ADDS: {}, READS: {}, ACKS: {}}
        self.rates: dict[str, dict[Labels, float]] = {name: {} for name in self._trends}
        self._cpu_s = time.process_time()
        self.now = self.then = _taken(store, patterns)

    @property
    def has_rates(self) -> bool:
        """Whether there were two looks."""
        return self.now is not self.then

    def look(self) -> None:
        """Take the next sample."""
        self._cpu_s, self._due_s = time.process_time(), None
        self.then, self.now = self.now, _taken(self._store, self._patterns)
        self._looks += 1
        for name, trends in self._trends.items():
            rates = self.rates[name] = rates_of(self.then, self.now, name)
            trends[WHOLE] = trends.get(WHOLE, deque(maxlen=TREND_LOOKS))
            trends.update({
                at: deque(maxlen=TREND_LOOKS) for at, rate in rates.items()
                if rate and at not in trends
            })  # fmt: skip
            for at, trend in trends.items():
                trend.append(sum(rates.values()) if at == WHOLE else rates.get(at, 0.0))
            idle = [at for at, trend in trends.items() if at != WHOLE and not any(trend)]
            for at in idle:
                del trends[at]

    def only(self, patterns: tuple[str, ...]) -> None:
        """Look at other streams from now on, at once; rates come with the look after that."""
        if patterns != self._patterns:
            self._patterns = patterns
            self.now = self.then = _taken(self._store, patterns)
            self.rates = {name: {} for name in self._trends}

    def rest_s(self) -> float:
        """Seconds until the next look is due. What was done since the last one, such as drawing,
        counts as its cost where this is asked first."""
        now_s = time.monotonic()
        if self._due_s is None:
            spent_s = time.process_time() - self._cpu_s  # without loading modules
            spent_s = spent_s if self._looks >= LOADING_LOOKS else 0.0
            interval_s = self._interval_s if self._looks else self._first_s
            self._due_s = self.now.at_s + max(interval_s, spent_s / CPU_SHARE)
        return max(0.0, self._due_s - now_s)

    def rate(self, name: str) -> float | None:
        """The rate of the whole store; None: not known yet."""
        return sum(self.rates[name].values()) if self.has_rates else None

    def trend(self, name: str, at: Labels = WHOLE) -> list[float]:
        """The rates of a stream, a group, or the store at the last looks, the newest last."""
        return list(self._trends[name].get(at, ()))

    def trends(self) -> dict[str, dict[Labels, list[float]]]:
        """All trends as they are now: by what they are of, then by stream or group."""
        return {
            name: {at: list(each) for at, each in trends.items()}
            for name, trends in self._trends.items()
        }

    def object(self) -> dict[str, Any]:
        """The last sample as an object for JSON."""
        adds, reads, acks = (self.rates[name] for name in (ADDS, READS, ACKS))
        numbers = self.now.numbers
        whole = {
            name: values[WHOLE]
            for name, values in numbers.items()
            if WHOLE in values and not name.startswith("process_")
        }
        return {
            "time_s": time.time(),
            **whole,
            "streams_by_name": [
                {"stream": at[0], "adds_per_s": adds.get(at, 0.0), "entries": entries}
                for at, entries in numbers["stream_entries"].items()
            ],
            "groups_by_name": [
                {
                    "stream": at[0],
                    "group": at[1],
                    "reads_per_s": reads.get(at, 0.0),
                    "acks_per_s": acks.get(at, 0.0),
                    "lag": numbers["group_lag"].get(at),
                    "pending": pending,
                    "oldest_pending_seconds": numbers["group_oldest_pending_seconds"][at],
                    "waiting": numbers["group_waiting"][at],
                }
                for at, pending in numbers["group_pending"].items()
            ],
        }
