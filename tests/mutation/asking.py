"""The process that holds the gathered tests, as the runner sees it.

Invariants: the product and the tests are those of the copy that it is made with; one question at a
time. What runs when a module is imported is broken in the copy itself, for as long as one run of
pytest takes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutation import copies, scope

MEMORY = Path("/dev/shm")
OPTIONS = ("-q", "--hypothesis-seed=0", "-m", "not peers and not spark")
IMPORT_SECONDS = 300.0  # for a run of pytest of its own


class Asker:
    """A worker in a copy of the repository."""

    def __init__(self, tree: Path, only: Sequence[str] = ()) -> None:
        self.tree = tree
        files = [
            name for name in scope.tests(tree) if not only or any(part in name for part in only)
        ]
        room = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
        self.scratch = Path(tempfile.mkdtemp(prefix="logstore-mutation-", dir=room))
        self.environment = dict(os.environ, PYTHONPATH=str(tree), TMPDIR=str(self.scratch))
        self.environment |= scope.ENVIRONMENT | {"PYTHONDONTWRITEBYTECODE": "1"}
        asked, self._ask = os.pipe()
        self._answer, answered = os.pipe()
        self._log = (self.scratch / "output").open("wb")
        self.process = subprocess.Popen(
            [*self._pytest("files"), "-p", "tests.mutation.worker", *files],
            cwd=tree,
            env=self.environment | {"LOGSTORE_MUTATION": f"{asked},{answered}"},
            pass_fds=(asked, answered),
            stdout=self._log,
            stderr=self._log,
        )
        os.close(asked)
        os.close(answered)
        self._jobs, self._answers = os.fdopen(self._ask, "w"), os.fdopen(self._answer)
        line = self._answers.readline()
        if not line:
            raise RuntimeError((self.scratch / "output").read_text())
        self.tests: list[str] = json.loads(line)

    def _pytest(self, files: str) -> list[str]:
        base = f"--basetemp={self.scratch / files}"
        cache = f"cache_dir={self.scratch / 'cache'}"
        return [sys.executable, "-m", "pytest", *OPTIONS, base, "-o", cache]

    def _exchange(self, job: dict[str, Any]) -> dict[str, str]:
        self._jobs.write(json.dumps(job) + "\n")
        self._jobs.flush()
        answer: dict[str, str] = json.loads(self._answers.readline())
        return answer

    def survey(self, tests: list[str], into: Path) -> None:
        """Measure what tests reach, with nothing broken."""
        self._exchange({"survey": str(into), "tests": tests})

    def ask(self, module: str, after: str, tests: dict[str, float]) -> dict[str, str]:
        """Whether the tests, each in so many seconds, notice that the module reads like this."""
        path = self.tree / module
        job = {"module": str(path), "before": path.read_text(), "after": after}
        limits = {"tests": list(tests), "seconds": list(tests.values())}
        answer = self._exchange(job | limits)
        return self._afresh(path, after, list(tests)) if answer["result"] == "outside" else answer

    def _afresh(self, path: Path, after: str, tests: list[str]) -> dict[str, str]:
        with copies.broken(path, after):
            try:
                done = subprocess.run(
                    [*self._pytest("afresh"), "-x", *tests],
                    cwd=self.tree,
                    env=self.environment,
                    capture_output=True,
                    timeout=IMPORT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {"result": "timeout", "by": ""}
        return {"result": "failed" if done.returncode else "passed", "by": ""}

    def close(self) -> None:
        """End the worker."""
        self._jobs.close()
        self.process.wait()
        self._answers.close()
        self._log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
