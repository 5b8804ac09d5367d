"""The plugin of pytest behind `make test`: draws tests, measures them, writes what came of a stage.

``tests/stages.py`` starts pytest with it. Every process of tests draws for itself, from the seed on
its command line, so all draw the same. The first process writes the file of ``--results``: the
counts, what failed, and what cannot be forgiven: a file that could not be collected, a process that
died, a test that ran out of time. Measuring takes a moment for each test, and is done
where ``--measure`` asks for it: processor time of the test and of all processes that it started,
and the time in which neither it nor they waited for a processor.
"""

from __future__ import annotations

import json
import math
import os
import resource
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests import draw

COST = "takes_s"
PHASES = ("setup", "call", "teardown")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TIMED_OUT = "from pytest-timeout"


@dataclass
class Results:
    """What came of one run of pytest."""

    stage: str
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unforgivable: list[str] = field(default_factory=list)
    takes_s: dict[str, float] = field(default_factory=dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that ``tests/stages.py`` gives."""
    group = parser.getgroup("stages of make test")
    group.addoption("--stage", default="", help="the stage of tests/stages.py that runs")
    group.addoption("--draw", default="", metavar="SEED", help="run a draw instead of everything")
    group.addoption("--budget", type=float, default=0.0, help="what the draw may take, in seconds")
    group.addoption("--dear", type=float, default=math.inf, help="see draw.draw")
    group.addoption("--results", type=Path, help="where to write what came of it")
    group.addoption("--measure", action="store_true", help="write what each test takes, too")


def pytest_configure(config: pytest.Config) -> None:
    """Draw in every process; write in the first one."""
    config.pluginmanager.register(Drawing(config), "stage-draw")
    if config.getoption("--measure"):
        config.pluginmanager.register(Measuring(), "stage-measure")
    if config.getoption("--results") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writing(config), "stage-results")


class Drawing:
    """Leaves out what is not drawn, behind all that chooses by marks."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._stage: str = config.getoption("--stage")
        self._seed: str = config.getoption("--draw")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is drawn, in its order."""
        if not self._seed:
            return
        names = [item.nodeid for item in items]
        costs = draw.load(self._stage)
        budget_s = self._config.getoption("--budget")
        seed, dear_s = f"{self._seed} {self._stage}", self._config.getoption("--dear")
        drawn = draw.draw(names, costs, budget_s, seed, dear_s)
        left = [item for item in items if item.nodeid not in drawn]
        items[:] = [item for item in items if item.nodeid in drawn]
        if left:
            self._config.hook.pytest_deselected(items=left)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A stage may have nothing to do, as told by ARGS."""
        if self._stage and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say at the end, too, how to draw the same."""
        if self._seed:
            terminalreporter.write_line(f"A draw: make test SEED={self._seed} draws the same.")


class Measuring:
    """Says with the last report of a test what it took."""

    def __init__(self) -> None:
        self._before = (0.0, 0.0, 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Look at the clocks before a test and its fixtures."""
        self._before = _clocks()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Look at them once more behind its fixtures."""
        report = yield
        if call.when == "teardown":
            clock, busy, queued = (
                after - before for before, after in zip(self._before, _clocks(), strict=True)
            )
            # What waited for a processor would not have, on a machine with nothing else to do.
            report.user_properties.append((COST, max(0.0, busy, clock - max(0.0, queued))))
        return report


class Writing:
    """Writes what came of the whole run."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path = config.getoption("--results")
        self._began_s = time.monotonic()
        self._results = Results(config.getoption("--stage"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, and whether running the test once more could tell anything."""
        results = self._results
        if report.failed:
            if report.nodeid not in results.failed:
                results.failed.append(report.nodeid)
            if report.when not in PHASES or TIMED_OUT in report.longreprtext:
                results.unforgivable.append(report.nodeid)
        if report.failed or report.skipped or report.when == "call":
            results.outcomes[report.outcome] = results.outcomes.get(report.outcome, 0) + 1
        for name, value in report.user_properties:
            if name == COST and isinstance(value, float):
                results.takes_s[report.nodeid] = round(value, 4)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected; also two processes that collected different tests."""
        if report.failed:
            self._results.unforgivable.append(f"{report.nodeid}: not collected")

    def pytest_internalerror(self) -> None:
        """Note that pytest itself failed."""
        self._results.unforgivable.append("pytest: an error of its own")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Write it all; without the file the run counts as failed."""
        self._results.seconds = time.monotonic() - self._began_s
        self._path.write_text(json.dumps(asdict(self._results)))


def _clocks() -> tuple[float, float, float]:
    """The clock, processor time of this process and all below it, its time in a run queue."""
    return time.monotonic(), _busy_s(), _queued_s()


def _busy_s() -> float:
    """Processor time of this process, of all it waited for, and of all that run below it."""
    found = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        found += used.ru_utime + used.ru_stime
    left = _children(os.getpid())
    while left:
        pid = left.pop()
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += sum(map(int, words[11:15])) * TICK_S
            left += _children(pid)
        except OSError:  # it ended meanwhile
            continue
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for each in threads for word in (each / "children").read_text().split()]
    except OSError:
        return []


def _queued_s() -> float:
    """How long this thread was ready to run while all processors were busy."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
