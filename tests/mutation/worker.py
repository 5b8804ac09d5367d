"""Asks tests about mutants in forks of one process that has gathered all tests: a plugin of pytest.

With ``-p tests.mutation.worker`` nothing is run; LOGSTORE_MUTATION names two descriptors, where a
line of JSON is a job and is answered by one: {"survey": path, "tests": [...]} measures what tests
reach, {"module": path, "before": source, "after": source, "tests": [...], "seconds": [...]} asks
them about a mutant, until one fails, and gives each of them so many seconds. The result is
"passed", "failed" with the test that failed, "timeout" with the test that had no end, or "outside"
if code that runs at import differs, and not only in values.

Invariant: what a fork does stays in it; what one that is stopped has mounted is taken away.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.patch import differing, living, patch
from tests.mutation.reach import Reach
from tests.mutation.values import restate

PATIENCE = 0.01  # seconds between two looks at a fork
STOPPED = (
    0.5  # a look that comes so much later: all of it was stopped, and that time does not count
)
Answer = dict[str, str]


class First:
    """Remembers the first test that failed."""

    def __init__(self) -> None:
        self.by = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of a test, its setup or its teardown."""
        if report.failed and not self.by:
            self.by = report.nodeid


def follow(items: list[pytest.Item], first: First | None, place: mmap.mmap) -> None:
    """Run tests, telling at which place one is; with ``first``, until one fails."""
    for at, item in enumerate(items):
        place[:4] = at.to_bytes(4, "little")
        after = items[at + 1] if at + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if first is not None and first.by:
            return


def unmount(below: Path) -> None:
    """Take away what a test that was stopped has mounted: files below it could not be removed, and
    every test behind it would fail."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if Path(line.split()[1]).is_relative_to(below):
            subprocess.run(["umount", "-l", line.split()[1]], check=False)


class Worker:
    """The gathered tests, by name, and the fork at work."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.scratch = Path(tempfile.mkdtemp(prefix="answer-"))
        self.place = mmap.mmap(-1, 4)  # which test a fork is at
        self.living = living()
        # A fork that collects garbage, or looks at every object, copies all of the memory.
        gc.collect()
        gc.freeze()

    def answer(self, job: dict[str, Any]) -> Answer:
        """One job, in a fork."""
        functions = None
        if "survey" not in job:
            functions = differing(Path(job["module"]), job["before"], job["after"])
        into = self.scratch / "answer"
        into.unlink(missing_ok=True)
        self.place[:4] = bytes(4)
        child = os.fork()
        if not child:
            try:
                os.setsid()
                into.write_text(json.dumps(self._child(job, functions)))
            finally:
                os._exit(0)
        return self._wait(child, job["tests"], job.get("seconds"), into)

    def _child(self, job: dict[str, Any], functions: Any) -> Answer:
        plugins = self.session.config.pluginmanager
        items = [self.items[test] for test in job["tests"]]
        if "survey" in job:
            reach = Reach(Path(job["survey"]))
            plugins.register(reach)
            follow(items, None, self.place)
            reach.write()
            return {"result": "passed", "by": ""}
        first = First()
        plugins.register(first)
        if not (self._restate(job) if functions is None else patch(functions, self.living)):
            return {"result": "outside", "by": ""}
        follow(items, first, self.place)
        return {"result": "failed" if first.by else "passed", "by": first.by}

    @staticmethod
    def _restate(job: dict[str, Any]) -> int:
        """Change the values of a module; 0 if that cannot be done here."""
        path = Path(job["module"]).resolve()
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if file and Path(file).resolve() == path:
                try:
                    return restate(module, job["after"])
                except Exception:  # noqa: BLE001  then a run of its own must tell
                    return 0
        return 0

    def _wait(
        self, child: int, tests: list[str], seconds: list[float] | None, into: Path
    ) -> Answer:
        looked, place, took = time.monotonic(), 0, 0.0
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            now, at = time.monotonic(), int.from_bytes(self.place[:4], "little")
            took = 0.0 if at != place else took + (now - looked if now - looked < STOPPED else 0.0)
            looked, place = now, at
            if seconds is not None and took > seconds[place]:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                unmount(Path(tempfile.gettempdir()))
                return {"result": "timeout", "by": tests[place]}
            time.sleep(PATIENCE)
        if not into.exists():
            return {"result": "failed", "by": "the process died"}
        answer: Answer = json.loads(into.read_text())
        return answer


def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of running the tests: answer jobs until there are none."""
    asked, answered = (int(one) for one in os.environ["LOGSTORE_MUTATION"].split(","))
    worker = Worker(session)
    with os.fdopen(asked) as jobs, os.fdopen(answered, "w") as answers:
        answers.write(json.dumps(sorted(worker.items)) + "\n")
        answers.flush()
        for line in jobs:
            answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")
            answers.flush()
    sys.exit(0)
