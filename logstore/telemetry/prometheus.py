"""A store for Prometheus: a collector for the registry of a program.

Invariants: numbers are read when Prometheus asks, in the thread that answers; a store that was
closed gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.errors import ClosedError, OptionError, shown
from logstore.telemetry.gathering import SERIES_MAX, gather


class StoreCollector(Collector):
    """The numbers of a store: ``prometheus_client.REGISTRY.register(StoreCollector(store))``.

    Args:
        store: an open store.
        series_max: so many streams, and so many groups, have series of their own; totals count all.
        streams: globs of names; only streams that match one of them have series. None: any.

    Raises:
        OptionError: ``series_max`` is no number from 0 on.
    """

    def __init__(
        self, store: Store[Any], *, series_max: int = SERIES_MAX, streams: Iterable[str] = ()
    ) -> None:
        if isinstance(series_max, bool) or not isinstance(series_max, int) or series_max < 0:
            raise OptionError(f"series_max must be a number from 0 on, not {shown(series_max)}")
        self._opened, self._series_max = opened_of(store), series_max
        self._patterns = tuple(streams)

    def describe(self) -> list[Metric]:
        """Nothing: registering reads no store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Each family as prometheus_client has it."""
        try:
            families = gather(self._opened, self._series_max, self._patterns)
        except ClosedError:
            return
        for family in families:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for labels, number in family.samples:
                metric.add_metric(labels, number)
            yield metric
