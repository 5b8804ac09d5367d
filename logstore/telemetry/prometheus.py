"""A store for Prometheus: a collector for the registry of a program, and the text that it is sent.

Invariants: numbers are read when Prometheus asks, in the thread that answers; a store that was
closed gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.errors import ClosedError, OptionError, shown
from logstore.telemetry.family import Family
from logstore.telemetry.gathering import SERIES_MAX, gather

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Families(Collector):
    """What is gathered when it is asked for."""

    def __init__(self, gathered: Callable[[], Iterable[Family]]) -> None:
        self._gathered = gathered

    def describe(self) -> list[Metric]:
        """Nothing: registering reads no store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Each family as prometheus_client has it."""
        for family in self._gathered():
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for labels, number in family.samples:
                metric.add_metric(labels, number)
            yield metric


class StoreCollector(_Families):
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
        opened, patterns = opened_of(store), tuple(streams)

        def gathered() -> list[Family]:
            try:
                return gather(opened, series_max, patterns)
            except ClosedError:
                return []

        super().__init__(gathered)


def exposition(families: Iterable[Family]) -> bytes:
    """These families as the text that Prometheus reads (``CONTENT_TYPE``), and nothing else of this
    process."""
    registry = CollectorRegistry()
    registry.register(_Families(lambda: families))
    return generate_latest(registry)
