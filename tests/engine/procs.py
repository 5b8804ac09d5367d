"""Processes for the tests of this room: forked, with their errors brought back."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager


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

    def join(self) -> None:
        """Wait for its end."""
        said = b""
        while part := os.read(self._read, 65536):
            said += part
        os.close(self._read)
        os.waitpid(self.pid, 0)
        assert said == b"ok", said.decode()

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


class Waiting(Forked):
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
