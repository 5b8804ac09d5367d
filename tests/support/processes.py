"""Processes of tests: a forked one runs a function, a program runs the text of a program.

Invariants: a forked child never returns into pytest, and what it raised is told by who waits for
it; an exit code below zero is the signal that ended the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

PATIENCE_S = 60


class Forked(AbstractContextManager["Forked"]):
    """A child that runs a function; what it raised is raised by ``join``."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                work()
                os.write(write, b"ok")
            except BaseException:  # noqa: BLE001  a child must not return into pytest
                os.write(write, traceback.format_exc().encode()[-60_000:])
            finally:
                os._exit(0)
        os.close(write)

    def _ended(self) -> tuple[bytes, int]:
        """What it wrote, and its exit code."""
        said = b""
        while part := os.read(self._read, 65536):
            said += part
        os.close(self._read)
        return said, os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def join(self) -> None:
        """Wait for its end, which must be that of the function."""
        said, _ = self._ended()
        assert said == b"ok", said.decode()

    def exit_code(self) -> int:
        """Wait for its end; the function may end the process itself, and must not raise."""
        said, code = self._ended()
        assert said in {b"", b"ok"}, said.decode()
        return code

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._read)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.join()
        else:
            self.kill()


class ForkedOnGo(Forked):
    """A child that begins when told to: a fork closes the parent's environment, and a test of what
    the parent has open must let it open that again in between.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        ready, self._go = os.pipe()

        def wait() -> None:
            os.read(ready, 1)
            work()

        super().__init__(wait)
        os.close(ready)

    def go(self) -> None:
        """Begin, and wait for the end."""
        os.write(self._go, b"x")
        os.close(self._go)
        self.join()


class ForkedInTurns(Forked):
    """A child that does a turn each time that it is told to. Its function gets the turns, which end
    when the parent says so, or dies.
    """

    def __init__(self, work: Callable[[Iterator[None]], object]) -> None:
        (begin, self._begin), (self._done, done) = os.pipe(), os.pipe()

        def turns() -> Iterator[None]:
            while os.read(begin, 1):
                yield
                os.write(done, b"x")

        def play() -> None:
            os.close(self._begin)
            os.close(self._done)
            work(turns())

        super().__init__(play)
        os.close(begin)
        os.close(done)

    def turn(self) -> None:
        """Let it do one, and wait for it."""
        os.write(self._begin, b"x")
        assert os.read(self._done, 1), "it died"

    def join(self) -> None:
        """There are no more turns: wait for its end."""
        os.close(self._begin)
        os.close(self._done)
        super().join()


def die() -> None:
    """Be killed, here and now."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> None:
    """Run a function in a child that must be killed before the function ends."""
    assert Forked(work).exit_code() == -signal.SIGKILL


def run_program(
    code: str, *arguments: object, exits: int = 0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which must come with this exit code."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == exits, (done.returncode, done.stdout, done.stderr)
    return done


class Program(AbstractContextManager["Program"]):
    """A program that runs beside the test. It reads lines from its standard input, and prints
    lines, flushed; the end of its input ends it.
    """

    def __init__(self, code: str, *arguments: object, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            **{"stdin": subprocess.PIPE, **options},
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def answer(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, *words: object) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words: object) -> str:
        """Its answer to a line."""
        self.send(*words)
        return self.answer()

    def end(self, line: str = "") -> str:
        """Have it end, as nothing more comes behind this; what it printed meanwhile."""
        return self.process.communicate(line, timeout=PATIENCE_S)[0]

    def kill(self) -> str:
        """SIGKILL; what it had printed by then."""
        self.process.kill()
        return self.process.communicate()[0]

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or nobody has waited for its end."""
        return self.process.returncode

    def __exit__(self, *_: object) -> None:
        if self.exit_code is None:
            self.end()
