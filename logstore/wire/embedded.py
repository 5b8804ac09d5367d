"""A connection without a socket: requests in, replies out, in the same process.

Requests come as bytes or as words, replies go as bytes or as values, in any mixture. Invariants: a
command runs in the thread that sends it; replies come in the order of requests; a read that blocks
waits when its reply is read, and holds nothing meanwhile.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from logstore.aio.tasks import Tasks
from logstore.aio.wait import Watcher
from logstore.api.opening import opened_of
from logstore.options import Profile
from logstore.wire.blocking import Blocked, Unblocked
from logstore.wire.catalogue import service_of
from logstore.wire.command_runner import told
from logstore.wire.resp.reply import NO_REPLY, Reply, encode
from logstore.wire.service import Service
from logstore.wire.session import Batches, Session
from logstore.wire.steps import Block, Step, Tell

SLICE_S = 60.0  # a task that waits looks again at least so often, should it not be woken


class Direct:
    """One client's session; with ``values`` each reply stands for itself, none is bytes yet."""

    def __init__(self, service: Service, *, values: bool = False) -> None:
        self.service = service
        self.session: Session = Session(service, address="embedded", trusted=True)
        self.ready: deque[tuple[Reply, int]] = deque()  # replies, and the protocol of each
        self._batches = Batches(self.session, joined=not values)
        self._waiting: Block | Blocked | None = None  # a read that blocks
        self._behind: deque[Callable[[], Iterator[Sequence[Step]]]] = deque()  # not looked at yet
        self._runs: Iterator[Sequence[Step]] = iter(())

    def feed(self, data: bytes) -> None:
        """Take requests as bytes; the replies of those that need not wait become ready."""
        self._behind.append(lambda: self._batches.feed(data))
        self._go_on()

    def words(self, requests: Sequence[list[bytes]]) -> None:
        """Take requests that are words already."""
        if len(requests) > 1 or self._waiting is not None:
            self._behind.append(lambda: self._batches.words(requests))
            self._go_on()
            return
        step = self._batches.step(requests[0])
        self.service.counts.count(1)
        if isinstance(step, Block):
            self._waiting = step
        else:
            self._tell(self._replies([step]))

    def wait(self, deadline: float | None) -> None:
        """Make the replies of what waits ready, until the deadline (of ``time.monotonic``)."""
        while (blocked := self._blocked()) is not None:
            replies = blocked.in_thread(deadline)
            if replies is None:
                return
            self._answered(replies)

    async def wait_in_task(self, tasks: Tasks) -> None:
        """The same of the read that blocks now, in a task of an event loop: another one that was
        asked behind it may block after this.
        """
        blocked = self._blocked()
        if blocked is None:
            return
        try:
            reply = await blocked.in_task(tasks, SLICE_S)
        except Unblocked as unblocked:
            reply = unblocked.reply
        await tasks.run(partial(self._answered, [reply]))

    def _blocked(self) -> Blocked | None:
        step = self._waiting
        if isinstance(step, Block):
            step = self._waiting = Blocked(self.session, step)
        return step

    def _answered(self, replies: list[Reply]) -> None:
        self._waiting = None
        self._tell(replies)
        self._go_on()

    def encoded(self) -> bytes:
        """All replies that are ready, as bytes; they are taken."""
        data = b"".join([encode(reply, protocol) for reply, protocol in self.ready])
        self.ready.clear()
        return data

    @property
    def waits(self) -> bool:
        """Whether a read blocks."""
        return self._waiting is not None

    def close(self) -> None:
        """The client went."""
        self.session.leave()
        self.service.end(self.session)

    # -- running ------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Run what came, up to the next read that blocks."""
        while self._waiting is None:
            steps = next(self._runs, None)
            if steps is None:
                if not self._behind:
                    return
                self._runs = self._behind.popleft()()
            elif isinstance(steps[0], Block):
                self._waiting = steps[0]
            else:
                self._tell(self._replies(steps))

    def _replies(self, steps: Sequence[Step]) -> list[Reply]:
        step = steps[0]
        if isinstance(step, Tell):
            return [told(step)]
        return self.session.database.runner.run(steps)

    def _tell(self, replies: list[Reply]) -> None:
        session = self.session
        session.service.counts.note(replies)
        for reply in replies if session.replies == "ON" else session.sent(replies):
            if reply is not NO_REPLY:
                self.ready.append((reply, session.protocol))


class EmbeddedSocket:
    """A connected socket, as far as client libraries look; ``receive`` needs ``values``."""

    def __init__(self, service: Service, *, values: bool = False) -> None:
        self._direct = Direct(service, values=values)
        self._data = bytearray()  # of replies that were read in part
        self._timeout_s: float | None = None
        self._closed = False

    def settimeout(self, value: float | None) -> None:
        """Set the time-out, as of a socket: with None it waits for ever, with 0 not at all."""
        self._timeout_s = value

    def gettimeout(self) -> float | None:
        """The time-out that was set."""
        return self._timeout_s

    def sendall(self, data: bytes | memoryview) -> None:
        """Run the requests in ``data``; BrokenPipeError once the session ended."""
        self._check()
        self._direct.feed(bytes(data))

    def send_words(self, requests: Sequence[list[bytes]]) -> None:
        """Run requests that are words; BrokenPipeError once the session ended."""
        self._check()
        self._direct.words(requests)

    def _check(self) -> None:
        if self._closed or self._direct.session.closing:
            raise BrokenPipeError("the session was ended")

    def receive(self, timeout_s: float | None) -> tuple[Reply, int] | None:
        """The next reply and its protocol, None at the end; TimeoutError or BlockingIOError."""
        ready = self._direct.ready
        if not ready and not self._wait(timeout_s):
            return None
        return ready.popleft()

    @property
    def at_rest(self) -> bool:
        """Whether a request may come: no reply is owed."""
        direct = self._direct
        return not (
            self._data or direct.ready or direct.waits or self._closed or direct.session.closing
        )

    def readable(self, timeout_s: float | None) -> bool | None:
        """Whether a reply is there, or comes within so long; None at the end of the session."""
        if self._data or self._direct.ready:
            return True
        try:
            return True if self._wait(timeout_s) else None
        except (TimeoutError, BlockingIOError):
            return False

    def recv(self, size: int) -> bytes:
        """Bytes of replies; TimeoutError or BlockingIOError as a socket has them."""
        if not self._data and (self._direct.ready or self._wait(self._timeout_s)):
            self._data += self._direct.encoded()
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """Read bytes of replies into a buffer; how many."""
        data = self.recv(size or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for a reply; False at the end of the session."""
        direct = self._direct
        if self._closed or direct.session.closing:
            return False
        if timeout_s == 0:
            raise BlockingIOError(errno.EWOULDBLOCK, "no reply is there")
        if direct.waits:
            direct.wait(None if timeout_s is None else time.monotonic() + timeout_s)
        if not direct.ready:
            raise TimeoutError("timed out")
        return True

    def shutdown(self, _how: int = 0) -> None:
        """End the session, as ``shutdown`` of a socket would."""
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
    _open: dict[str, tuple[Service, Watcher, int]] = {}  # noqa: RUF012

    @classmethod
    def take(cls, path: str | os.PathLike[str], profile: Profile, options: dict[str, Any]) -> str:
        """Open, or share; the key to give back."""
        key = str(Path(path).absolute())
        with cls._mutex:
            shared = cls._open.get(key)
            if shared is None:
                store: Any = logstore.open(path, **options)
                service = service_of(store, profile, allow_flush=True)
                shared = (service, Watcher(opened_of(store).engine), 0)
            cls._open[key] = (*shared[:2], shared[2] + 1)
        return key

    @classmethod
    def service(cls, key: str) -> Service:
        """The service that was taken."""
        return cls._open[key][0]

    @classmethod
    def watcher(cls, key: str) -> Watcher:
        """The watcher of its store, which wakes tasks that wait."""
        return cls._open[key][1]

    @classmethod
    def give_back(cls, key: str) -> None:
        """One client less; the last one closes the store."""
        with cls._mutex:
            service, watcher, uses = cls._open[key]
            if uses > 1:
                cls._open[key] = (service, watcher, uses - 1)
                return
            del cls._open[key]
        watcher.close()
        watcher.join()
        service.store.close()
