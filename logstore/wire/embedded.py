"""A connection without a socket: bytes of requests in, bytes of replies out, in the same process.

It looks like a connected socket to a client library, which keeps its own packing and parsing.
Invariants: a command runs in the thread that sends it; replies come in the order of requests; a
read that blocks waits when its reply is read, and holds nothing meanwhile.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.waiting import wait_streams
from logstore.wire.batches import Batches
from logstore.wire.failures import UNBLOCKED, Failed, failure_of
from logstore.wire.reply import Failure, Reply, encode
from logstore.wire.runner import StoreReader
from logstore.wire.service import Profile, Service
from logstore.wire.session import Session
from logstore.wire.steps import Block, Step, Tell


class Direct:
    """One client's session, fed with bytes."""

    def __init__(self, service: Service, address: str = "embedded") -> None:
        self.service = service
        self.session: Session = service.session(address=address, trusted=True)
        self._batches = Batches(self.session)
        self._waiting: deque[Step] = deque()  # from a read that blocks on
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """Take requests; the replies of those that need not wait."""
        parts: list[bytes] = []
        for steps in self._batches.feed(data):
            if self._waiting or isinstance(steps[0], Block):
                self._waiting += steps
            else:
                parts.append(self._encoded(self._replies(steps)))
        return b"".join(parts)

    def wait(self, deadline: float | None) -> bytes:
        """The replies of what waits, when there are some; b"" if the deadline came first."""
        parts: list[bytes] = []
        while self._waiting:
            step = self._waiting[0]
            if isinstance(step, Block):
                found = self._block(step, deadline)
                if found is None:
                    break
                self._waiting.popleft()
                parts.append(self._encoded([found]))
            else:
                self._waiting.popleft()
                parts.append(self._encoded(self._replies([step])))
        return b"".join(parts)

    @property
    def waits(self) -> bool:
        """Whether a read blocks."""
        return bool(self._waiting)

    def close(self) -> None:
        """The client went."""
        self._over = True
        self.service.end(self.session)

    # -- running ------------------------------------------------------------------------------
    def _replies(self, steps: Sequence[Step]) -> list[Reply]:
        step = steps[0]
        if isinstance(step, Tell):
            try:
                return [step.make()]
            except Failed as failed:
                return [failure_of(failed)]
        return self.service.runner.run(steps)

    def _encoded(self, replies: list[Reply]) -> bytes:
        protocol = self.session.protocol
        return b"".join([encode(each, protocol) for each in self.session.told(replies)])

    def _block(self, step: Block, deadline: float | None) -> Reply:
        """The reply of a read that blocks; None if the client's own time was over first."""
        own = self._deadline_of(step)
        ends = [each for each in (own, deadline) if each is not None]
        runner, engine = self.service.runner, self.service.store._engine()
        reader = StoreReader(self.service.store)
        told: list[bool] = []
        self.session.unblock = told.append

        def attempt() -> list[Reply] | None:
            if told:
                return [Failure(UNBLOCKED) if told[0] else step.empty]
            if step.worth is not None and not step.worth(reader):
                return None
            found = runner.run([step.attempt])
            return None if found[0] is step.empty else found

        try:
            while True:
                pause_ms = None if step.pause_ms is None else step.pause_ms(reader)
                slices = ends if pause_ms is None else [*ends, time.monotonic() + pause_ms / 1000]
                until = min(slices, default=None)
                found = wait_streams(engine, step.keys, attempt, until)
                if found:
                    return found[0]
                now = time.monotonic()
                if own is not None and now >= own:
                    return step.empty
                if deadline is not None and now >= deadline:
                    return None
        finally:
            self.session.unblock = None

    def _deadline_of(self, step: Block) -> float | None:
        """When a read ends by its own BLOCK, counted from its first look."""
        if step.timeout_ms is None:
            return None
        begun = self.session.blocked_since
        if begun is None or begun[0] is not step:
            begun = self.session.blocked_since = (step, time.monotonic())
        return begun[1] + step.timeout_ms / 1000


class EmbeddedSocket:
    """A connected socket, as far as client libraries look."""

    def __init__(self, service: Service) -> None:
        self._direct = Direct(service)
        self._data = bytearray()
        self._timeout_s: float | None = None
        self._closed = False

    def settimeout(self, value: float | None) -> None:
        """As of a socket: None waits for ever, 0 does not."""
        self._timeout_s = value

    def gettimeout(self) -> float | None:
        """What was set."""
        return self._timeout_s

    def sendall(self, data: bytes | memoryview) -> None:
        """Run the requests in ``data``; BrokenPipeError once the session ended."""
        if self._closed or self._direct.session.closing:
            raise BrokenPipeError("the session was ended")
        self._data += self._direct.feed(bytes(data))

    def recv(self, size: int) -> bytes:
        """Bytes of replies; TimeoutError or BlockingIOError as a socket has them."""
        if not self._data:
            self._wait()
        found = bytes(self._data[:size])
        del self._data[:size]
        return found

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """The same into a buffer."""
        found = self.recv(size or len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _wait(self) -> None:
        if self._closed or self._direct.session.closing:
            return  # the end, as recv tells it
        timeout_s = self._timeout_s
        if timeout_s == 0:
            raise BlockingIOError(errno.EWOULDBLOCK, "no reply is there")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if self._direct.waits:
            self._data += self._direct.wait(deadline)
        if not self._data:
            raise TimeoutError("timed out")

    def shutdown(self, _how: int = 0) -> None:
        """As of a socket."""
        self.close()

    def close(self) -> None:
        """End the session."""
        if not self._closed:
            self._closed = True
            self._direct.close()

    def fileno(self) -> int:
        """There is no file."""
        return -1


class Shared:
    """Services of this process by path: clients of one store see each other."""

    _mutex = threading.Lock()
    _open: dict[str, tuple[Service, int]] = {}  # noqa: RUF012

    @classmethod
    def take(cls, path: str | os.PathLike[str], profile: Profile, options: dict[str, Any]) -> str:
        """Open, or share; the key to give back."""
        key = str(Path(path).absolute())
        with cls._mutex:
            found = cls._open.get(key)
            if found is None:
                store: Any = logstore.open(path, **options)
                found = (Service(store, profile=profile, allow_flush=True), 0)
            cls._open[key] = (found[0], found[1] + 1)
        return key

    @classmethod
    def service(cls, key: str) -> Service:
        """The service that was taken."""
        return cls._open[key][0]

    @classmethod
    def give_back(cls, key: str) -> None:
        """One client less; the last one closes the store."""
        with cls._mutex:
            service, uses = cls._open[key]
            if uses > 1:
                cls._open[key] = (service, uses - 1)
                return
            del cls._open[key]
        service.store.close()
