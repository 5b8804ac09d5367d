"""A store for OpenTelemetry: observable instruments of a meter, for the numbers of Prometheus.

Invariants: one collection reads the store once, for all instruments; a store that was closed gives
no observations.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from logstore.api.opening import OpenStore, opened_of
from logstore.api.store import Store
from logstore.errors import ClosedError
from logstore.telemetry.gathering import SERIES_MAX, Family, gather

SHARED_S = 0.5  # the instruments of one collection share a reading that is not older
UNITS = {"bytes": "By", "seconds": "s", "": "1"}


def observe(
    store: Store[Any],
    meter: Meter | None = None,
    *,
    series_max: int = SERIES_MAX,
    streams: tuple[str, ...] = (),
) -> None:
    """Have a meter observe a store: gauges and counters named as for Prometheus, with dots.

    Args:
        store: an open store.
        meter: None: that of the global provider, named "logstore".
        series_max: so many streams, and so many groups, have series of their own.
        streams: globs of names; only streams that match one of them have series. None: any.
    """
    source = _Source(opened_of(store), partial(gather, series_max=series_max, patterns=streams))
    meter = get_meter("logstore") if meter is None else meter
    for family in source.families():
        make = (
            meter.create_observable_counter
            if family.kind == "counter"
            else meter.create_observable_gauge
        )
        make(
            family.name.replace("_", ".", 1),
            callbacks=[partial(source.observations, family.name)],
            unit=UNITS[family.unit],
            description=family.help,
        )


class _Source:
    """The families of one store; those of one collection are read once."""

    def __init__(
        self, opened: OpenStore[Any], read: Callable[[OpenStore[Any]], list[Family]]
    ) -> None:
        self._opened = opened
        self._read = read
        self._lock = threading.Lock()
        self._read_at_s = 0.0
        self._families: dict[str, Family] = {}

    def families(self) -> list[Family]:
        """All of them, as of now."""
        with self._lock:
            try:
                self._opened.live()
                if not self._families or time.monotonic() - self._read_at_s > SHARED_S:
                    found = self._read(self._opened)
                    self._families = {family.name: family for family in found}
                    self._read_at_s = time.monotonic()
            except ClosedError:
                return []
            return list(self._families.values())

    def observations(self, name: str, _options: CallbackOptions) -> Iterable[Observation]:
        """The samples of one family."""
        for family in self.families():
            if family.name == name:
                return [
                    Observation(number, dict(zip(family.labels, labels, strict=True)))
                    for labels, number in family.samples
                ]
        return []
