"""What the web view looks at beside its pages: the rates of the store, and what the doctor finds.

Invariants: a page never waits for a look of another one's. Nothing is looked at before a page was
asked for, and not at once, so that the first page is not held up. The rates are those of
``logstore top``, which needs 2 % of a core at most. The doctor examines when its page is asked for,
or by itself so seldom that it needs 1 % of the time; what it found is kept until then. The thread
ends with the store.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.errors import Error
from logstore.telemetry import examination
from logstore.telemetry.doctor_findings import Examined, Finding, Limits
from logstore.telemetry.store_samples import ACKS, ADDS, TREND_LOOKS, WHOLE, Labels, Watch
from logstore.tuples import NamedTuple

INTERVAL_S = 2.0
FIRST_S = 1.0  # after the first page that was asked for
FINDINGS_S = 60.0  # for which findings are kept, at least
SHARE = 0.01  # of the time, for examinations that nobody asked for
WAIT_S = 2.0  # that the doctor's page waits for an examination
FRESH_S = 5.0  # the doctor's page shows what was found so shortly before
WATCHED_S = 300.0  # after the last page nothing is looked at


class Findings(NamedTuple):
    """What the doctor found, when, and what it looked at; ``trouble``: why it could not look."""

    found: list[Finding]
    at_s: float
    looked_at: str
    trouble: str = ""

    @property
    def mark(self) -> tuple[int, str]:
        """For the navigation: how many there are, and the worst level."""
        return len(self.found), self.found[0].level if self.found else ""


class Rates(NamedTuple):
    """Rates at the last looks, the newest last, and how long ago the first of these was."""

    name: str
    values: list[float]
    span: timedelta


class Observer:
    """Looks at one store, in a thread of its own."""

    def __init__(self, store: Store[bytes]) -> None:
        self._store = store
        self._lock = threading.Lock()  # for the thread
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        self._wake = threading.Event()
        self._wanted = False  # an examination, now
        self._watch: Watch | None = None
        self._looked_s: list[float] = []
        # Of one look, replaced by the next one's: pages read it while that goes on.
        self._trends: dict[str, dict[Labels, list[float]]] = {}
        self._before: tuple[float, Examined] | None = None
        self._done = threading.Event()
        self._cost_s = 0.0
        self.findings: Findings | None = None

    def asked(self) -> None:
        """A page is asked for: somebody is looking."""
        with self._lock:
            self._asked_s = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="logstore-web-observer", daemon=True
                )
                self._thread.start()

    def examined(self) -> Findings | None:
        """What the doctor finds now; what it found before if that takes long, None: nothing yet."""
        known = self.findings
        if known is None or time.monotonic() - known.at_s > FRESH_S:
            self._done.clear()
            self._wanted = True
            self.asked()
            self._wake.set()
            self._done.wait(WAIT_S)
        return self.findings

    def rates(self, stream: str = "") -> list[Rates]:
        """Adds and acks a second of a stream, or of the store; empty before the second look."""
        trends, looked_s = self._trends, self._looked_s
        if not trends:
            return []
        span = timedelta(seconds=time.monotonic() - looked_s[0])
        found: list[Rates] = []
        for name, which in (("Adds", ADDS), ("Acks", ACKS)):
            # Those of a stream are its own, or those of its groups.
            each = [
                trend for at, trend in trends[which].items()
                if (at[:1] == (stream,) if stream else at == WHOLE)
            ]  # fmt: skip
            found.append(Rates(name, _summed(each, len(looked_s)), span))
        return found

    # -- in the thread ------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            self._wake.wait(FIRST_S)
            while True:
                opened_of(self._store).engine()  # ClosedError, when it is
                self._wake.wait(self._look_around())
                self._wake.clear()
        except Error:
            self._done.set()  # the store is closed, or cannot be read: the pages tell

    def _look_around(self) -> float:
        """Do what is due; the seconds until more is."""
        if self._wanted:
            self._wanted = False
            self._examine()
            self._done.set()
        now_s = time.monotonic()
        if now_s - self._asked_s > WATCHED_S:
            return INTERVAL_S
        watch = self._watch
        if watch is None:
            watch = self._watch = Watch(self._store, INTERVAL_S, (), FIRST_S)
        elif watch.rest_s() <= 0:
            watch.look()
            self._looked_s = [*self._looked_s[1 - TREND_LOOKS :], watch.then.at_s]
            self._trends = watch.trends()
        rest_s = watch.rest_s()  # at once: an examination is no cost of the look
        known = self.findings
        kept_s = max(FINDINGS_S, self._cost_s / SHARE)
        if watch.has_rates and (known is None or now_s - known.at_s > kept_s):
            self._examine()
        return min(INTERVAL_S, rest_s)

    def _examine(self) -> None:
        begin_s = time.monotonic()
        try:
            path = opened_of(self._store).path
            seen = examination.examine(self._store, path, Limits())
            found = examination.findings(seen)
            if self._before is not None:
                then_s, then = self._before
                later = [each for each in seen.streams if each.lag]
                found += examination.growth(then, later, timedelta(seconds=begin_s - then_s))
            self._before = begin_s, seen
            found.sort(key=lambda each: each.rank)
            told = examination.looked_at(seen)
            self.findings = Findings(found, time.monotonic(), told)
        except Error as error:
            self.findings = Findings([], time.monotonic(), "", str(error))
        self._cost_s = time.monotonic() - begin_s


def _summed(trends: list[list[float]], count: int) -> list[float]:
    """The sum of trends, each of which may have begun later, at so many looks."""
    padded = [[0.0] * (count - len(each)) + each[-count:] for each in trends]
    return [sum(some) for some in zip(*padded, strict=True)] if padded else [0.0] * count
