"""What an attack costs: what the bystander waited, and what the server's process took meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.wire.attacks import bystander
from tests.wire.attacks.servers import Target

FILES_EVERY_S = 0.02
TICKS = os.sysconf("SC_CLK_TCK")
CALM_S = 0.15  # what is loaded at first use is loaded before anything is measured


@dataclass
class Cost:
    """What one attack cost.

    ``memory_bytes`` and ``files`` are peaks above what the process had before, ``log_bytes`` what
    it wrote to its log, ``cpu_s`` the processor time of all its threads.
    """

    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    asked: int = 0
    memory_bytes: int = 0
    files: int = 0
    log_bytes: int = 0
    cpu_s: float = 0.0


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def cpu_s(pid: int) -> float:
    """Processor time that a process has taken, all threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def _files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Bystander:
    """The client that waits: it asks "all", only "reads", or only "adds"."""

    def __init__(self, target: Target, what: str = "all") -> None:
        login = [target.serve.password] if target.serve.password else []
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", bystander.__file__, str(target.unix_socket), what, *login],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.told: dict[str, Any] = {}
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begun\n"

    def look(self) -> float:
        """The most that it waited since the last look, in milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("x")
        self._process.stdin.flush()
        self.told = json.loads(self._process.stdout.readline())
        assert not self.told["ended"], self.told
        return float(self.told["max_ms"])

    def end(self) -> dict[str, Any]:
        """End it; what it waited since the last look."""
        try:
            said, _ = self._process.communicate(timeout=bystander.SILENCE_MAX_S + 10)
            self.told = json.loads(said)
            return self.told
        finally:
            self._process.kill()
            self._process.wait()


class Meter:
    """Measures one target while a block runs; ``cost`` is whole behind it."""

    def __init__(self, target: Target, what: str = "all") -> None:
        self.cost = Cost()
        self._what = what
        self._target = target
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._files_most = 0

    def _sample(self) -> None:
        while not self._over.wait(FILES_EVERY_S):
            self._files_most = max(self._files_most, _files(self._target.pid))

    def __enter__(self) -> Self:
        target = self._target
        self._bystander = Bystander(target, self._what)
        time.sleep(CALM_S)
        self._memory = _memory(target.pid, "VmRSS")
        # 5 begins the peak again; it needs no more rights than a debugger has.
        Path(f"/proc/{target.pid}/clear_refs").write_text("5")
        self._files_before = self._files_most = _files(target.pid)
        self._cpu_s = cpu_s(target.pid)
        self._log_bytes = target.log.stat().st_size
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._over.set()
        self._sampler.join()
        told = self._bystander.end()
        if error is not None:
            return
        target, cost = self._target, self.cost
        assert not told["ended"], told
        assert not told["errors"], told
        cost.p50_ms, cost.p99_ms, cost.max_ms = told["p50_ms"], told["p99_ms"], told["max_ms"]
        cost.asked = told["asked"]
        cost.memory_bytes = max(0, _memory(target.pid, "VmHWM") - self._memory)
        cost.files = max(self._files_most, _files(target.pid)) - self._files_before
        cost.cpu_s = cpu_s(target.pid) - self._cpu_s
        cost.log_bytes = target.log.stat().st_size - self._log_bytes
