"""Which lines of the modules each test reaches, and how long it takes: a plugin of pytest.

What is written is JSON, {"seconds": {test: s}, "lines": {module: {line: [test, ...]}}}, of the
tests that passed. Invariant: nothing is counted that a test did in another process.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutation import scope

ROOT = Path(__file__).resolve().parent.parent.parent


class Reach:
    """Measures the session, and switches at each test."""

    def __init__(self, into: Path) -> None:
        self.into = into
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        wanted = [str((ROOT / name).resolve()) for name in scope.modules(ROOT)]
        self.measured = coverage.Coverage(data_file=None, include=wanted, config_file=False)
        self.measured.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """One test is one context."""
        self.measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What a test took in all, and whether it counts."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def write(self) -> None:
        """Write it down."""
        self.measured.stop()
        data = self.measured.get_data()
        counted = {test: took for test, took in self.seconds.items() if test not in self.failed}
        lines = {
            os.path.relpath(name, ROOT): {
                line: [test for test in tests if test in counted]
                for line, tests in data.contexts_by_lineno(name).items()
            }
            for name in data.measured_files()
        }
        self.into.write_text(json.dumps({"seconds": counted, "lines": lines}))
