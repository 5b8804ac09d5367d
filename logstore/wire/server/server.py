"""The server: asyncio, one task a connection, steps run in a few threads.

What came together runs together: all requests of one read of the socket are steps of one batch,
and its changes share a commit. Invariants: replies go out in the order of requests; who only reads
never stands behind who commits; a client that does not read its replies is not read from either,
and is cut off when it owes too much; a waiting client holds no thread, and one that goes gets
nothing any more. New clients are accepted by ``arrivals``, at sockets that ``listening`` opened.
"""

from __future__ import annotations

import asyncio
import logging
import random
import select
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, SupportsIndex, TypeVar

from logstore.aio.tasks import Tasks
from logstore.aio.wait import Watcher
from logstore.api.opening import opened_of
from logstore.wire.blocking import Blocked, Unblocked
from logstore.wire.command_runner import Reading, is_shared, told
from logstore.wire.resp.outgoing import Cut, Owed, OwedBytes
from logstore.wire.resp.reply import Made, Reply, encode
from logstore.wire.server.admission import Arrivals, Place
from logstore.wire.server.at_once import AtOnce, Runs
from logstore.wire.server.held_adds import GroupCommit
from logstore.wire.server.listening import Listen, UnixSocket, tcp_sockets
from logstore.wire.server.read_turns import ReadTurns
from logstore.wire.service import Database, Service
from logstore.wire.session import Batches, Session
from logstore.wire.steps import Block, Change, Look, Step, Tell, Unread, commits

T = TypeVar("T")
log = logging.getLogger("logstore.server")
READ_BYTES = 64 * 1024
THREADS = 4
SLICE_S = 60.0  # a waiting client looks again at least so often, should it not be woken
CLOSE_S = 1.0  # for what a client that is not in is still to read
QUERY_MAX_BYTES = 1 << 30  # of one client, as client-query-buffer-limit
OUTPUT_MAX_BYTES = 1 << 30  # that one client may owe to read
WRITE_BYTES = 256 * 1024  # of replies that are written together
UNSENT_MAX = 1000  # replies that were made at once and not written yet
TURN_S = 0.003  # that a client may hold up the others


class Server:
    """Serves stores to the clients of an event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._watchers = {
            number: Watcher(opened_of(database.store).engine)
            for number, database in service.databases.items()
        }
        # A commit may wait for a process that stands still: no read stands behind one.
        self._readers = ThreadPoolExecutor(THREADS, thread_name_prefix="logstore-read")
        self._writers = ThreadPoolExecutor(THREADS, thread_name_prefix="logstore-serve")
        self._turns = ReadTurns(self._readers)
        self.commits = {
            number: GroupCommit(database.runner, self._writers)
            for number, database in service.databases.items()
        }
        self.ends = False  # nobody waits for replies any more
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals = Arrivals(service, self._protocol)
        self._unix_socket: UnixSocket | None = None

    async def start(self, listen: Listen) -> list[Any]:
        """Begin to listen; the addresses."""
        listen.check(self.service.users)
        sockets = [] if listen.host is None else await tcp_sockets(listen.host, listen.port)
        if listen.unix_socket is not None:
            try:
                self._unix_socket = UnixSocket(listen.unix_socket, listen.unix_socket_mode)
            except BaseException:
                for opened in sockets:
                    opened.close()
                raise
            self._arrivals.listen(self._unix_socket.socket, None, listen)
        for opened in sockets:
            self._arrivals.listen(opened, listen.tls, listen)
        self.service.port = sockets[0].getsockname()[1] if sockets else 0
        names = [opened.getsockname() for opened in sockets]
        return names if self._unix_socket is None else [*names, str(self._unix_socket.path)]

    async def close(self) -> None:
        """Stop listening, end every client, wait for what runs: what only reads gives up."""
        self.ends = True
        self._arrivals.close()
        if self._unix_socket is not None:
            self._unix_socket.close()
        for watcher in self._watchers.values():
            watcher.close()
        for shared in self.commits.values():
            shared.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for threads in (self._readers, self._writers):
            await asyncio.to_thread(threads.shutdown)
        for watcher in self._watchers.values():
            await asyncio.to_thread(watcher.join)

    def _protocol(self, place: Place) -> asyncio.StreamReaderProtocol:
        return _Protocol(_Reader(limit=READ_BYTES), partial(self._serve, place))

    async def _serve(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(reader, _Reader)
        self._tasks.add(task)
        try:
            place.begin(writer.transport)
            await _Connection(self, place, reader, writer).serve()
        except (ConnectionError, asyncio.CancelledError, TimeoutError):
            pass
        except Cut as cut:
            if not (self.ends or writer.transport.is_closing()):
                log.warning("client %s is cut off: %s", writer.get_extra_info("peername"), cut)
            writer.transport.abort()  # a close would keep what is owed until it is read
        except Exception:
            log.exception("a connection ended")
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, OSError, asyncio.CancelledError):
                await _closed(place, writer)
            place.release()

    # -- running ------------------------------------------------------------------------------
    async def apart(self, work: Callable[[], T]) -> T:
        """Run work that takes long but needs no store in a thread; its result."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def run(self, database: Database, steps: Sequence[Step], owed: Owed) -> list[Reply]:
        """Run steps: small changes in a commit with those of others, all else in a thread of the
        readers or of the writers."""
        if all(map(is_shared, steps)):
            return await self.commits[database.number].run(steps, owed)
        runner = database.runner
        work: Callable[[], list[Reply]] = partial(runner.run, steps, owed, whole=False)
        threads = self._readers
        if any(map(commits, steps)):
            threads = self._writers
            work = partial(runner.since, time.monotonic_ns(), work)
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def read(self, database: Database, reading: Reading, gone: Callable[[], bool]) -> Reply:
        """Read on, in turns with the other reads that are long. ``Cut`` once the client is gone."""
        return await self._turns.read(database.runner, reading, lambda: self.ends or gone())

    async def block(self, session: Session, step: Block, gone: Callable[[], bool]) -> Reply:
        """Try until something is found, or the time is over."""
        database = session.database
        blocked = Blocked(session, step)

        def run(work: Callable[[], Any]) -> Awaitable[Any]:
            since = partial(database.runner.since, time.monotonic_ns(), work)
            return asyncio.get_running_loop().run_in_executor(self._writers, since)

        def read(look: Look) -> Awaitable[Reply]:
            return self.read(database, database.runner.reading(look, session.owed), gone)

        tasks = Tasks(self._watchers[database.number], run)
        slice_s = SLICE_S * random.uniform(0.5, 1.0)  # not all of them in the same moment
        try:
            return await blocked.in_task(tasks, slice_s, read)
        except Unblocked as unblocked:
            if session.gone:
                raise ConnectionError("the client went") from None
            return unblocked.reply


async def _closed(place: Place, writer: asyncio.StreamWriter) -> None:
    """Wait until a client has read what it is owed; for a stranger not for long."""
    try:
        await asyncio.wait_for(writer.wait_closed(), CLOSE_S if place.stranger else None)
    except TimeoutError:
        place.cut()


def _is_walk(step: Step) -> bool:
    return isinstance(step, Look) and step.walk is not None


def _is_amid(step: Step) -> bool:
    return isinstance(step, Change) and step.begun is not None


class Left:
    """Whether a client has gone: it closed or reset the connection, or sends nothing any more, and
    a read that is long is still under way. The system is asked, as nobody reads from it then."""

    def __init__(self, of: socket.socket, transport: asyncio.BaseTransport) -> None:
        self._socket, self._transport = of, transport
        self._poll: select.poll | None = None

    def __call__(self) -> bool:
        if self._transport.is_closing():
            return True
        if self._poll is None:
            number = self._socket.fileno()
            if number < 0:
                return True
            self._poll = select.poll()
            self._poll.register(number, select.POLLRDHUP)
        return bool(self._poll.poll(0))


def _no_bytes(_data: bytes) -> bool:
    return False


class _Reader(asyncio.StreamReader):
    """Notices that the client has gone even while nobody reads, unless much is still unread."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self.gone: Callable[[], object] = bool
        self.took: Callable[[bytes], bool] = _no_bytes  # what comes is seen to, and not read
        self._unread = 0
        self._ended = False

    @property
    def has_more(self) -> bool:
        """Whether reading gives something at once: bytes, the end, or an error."""
        return self._unread > 0 or self._ended

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """What the client sends."""
        came = bytes(data)  # which it is
        self._unread += len(came)
        super().feed_data(came)

    async def read(self, n: int = -1) -> bytes:
        """The next bytes, at most so many; none at the end."""
        data = await super().read(n)
        self._unread -= len(data)
        return data

    def feed_eof(self) -> None:
        """The client sends nothing any more."""
        super().feed_eof()
        self._ended = True
        self.gone()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        super().set_exception(exc)
        self._ended = True
        self.gone()


class _Protocol(asyncio.StreamReaderProtocol):
    """Hands what comes to who sees to it at once, if somebody does; else to the reader."""

    def __init__(
        self,
        reader: _Reader,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> None:
        super().__init__(reader, serve)
        self._reader = reader

    def data_received(self, data: bytes) -> None:
        """What the client sends."""
        if not self._reader.took(data):
            self._reader.feed_data(data)


class _Connection:
    """One connection: reads requests, runs them, writes replies."""

    def __init__(
        self, server: Server, place: Place, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._place = place
        self._session = session = place.session
        self._reader = reader
        self._writer = writer
        self._batches = Batches(session, sliced=True)
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []  # replies that were made at once
        self._since = self._loop.time()  # others had their turn then
        session.owed = self._owed = OwedBytes(session.protocol, OUTPUT_MAX_BYTES, self._is_there)
        self._at_once = at_once = AtOnce(
            place, self._batches, writer.transport, server.commits, self._owed
        )
        at_once.check = self._check
        session.send = self._push_soon
        reader.took, reader.gone = at_once.took, self._gone

    def _gone(self) -> None:
        """The client sends nothing any more."""
        self._session.leave()
        self._at_once.wake()

    def _is_there(self) -> bool:
        return not (self._writer.transport.is_closing() or self._server.ends)

    def _check(self) -> None:
        """``Cut`` if the client has sent more than it may without a whole request."""
        if self._batches.held_bytes + self._session.held_bytes > QUERY_MAX_BYTES:
            raise Cut(f"it has sent, or queued, over {QUERY_MAX_BYTES} bytes of requests")

    async def _more(self) -> Runs | None:
        """The runs of requests that came; None at the end. Plain adds may be answered before."""
        if not self._reader.has_more:
            runs = await self._at_once.until_others()
            self._since = self._loop.time()
            if self._writer.transport.get_write_buffer_size():
                await self._writer.drain()
            if runs is not None:
                return runs
        data = await self._reader.read(READ_BYTES)
        return self._batches.feed(data) if data else None

    async def serve(self) -> None:
        """Until the client goes, or is sent away."""
        session, place = self._session, self._place
        while not session.closing:
            place.ready()
            runs = await self._more()
            if runs is None:
                return
            place.busy()
            for steps in runs:
                await place.turn()
                await self._run(steps)
                place.follow(self._writer.transport)
            await self._flush()
            await self._breathe()
            self._check()

    async def _run(self, steps: Sequence[Step]) -> None:
        """Run what came together, and send its replies as they are made."""
        step = steps[0]
        if isinstance(step, Tell):
            self._tell(step)
            await self._after_a_failed_login()
            if len(self._unsent) >= UNSENT_MAX or self._is_late:
                await self._flush()
                await self._breathe()
            return
        await self._flush()
        if isinstance(step, Unread):
            await self._run([await self._server.apart(step.make)])
        elif isinstance(step, Block):
            self._owe()
            gone = Left(self._place.socket, self._writer.transport)
            await self._send([await self._server.block(self._session, step, gone)])
        else:
            await self._run_all(steps)
        self._since = self._loop.time()

    async def _run_all(self, steps: Sequence[Step]) -> None:
        """Run steps that came together: reads in their slices, and what stands between them."""
        database, at = self._session.database, 0
        gone = Left(self._place.socket, self._writer.transport)
        while at < len(steps):
            step = steps[at]
            if isinstance(step, Look) and step.walk is not None:
                reading = step.begun or database.runner.reading(step, self._owe())
                replies = [await self._server.read(database, reading, gone)]
            else:
                end = next((to for to in range(at, len(steps)) if _is_walk(steps[to])), len(steps))
                owed = self._owed if _is_amid(step) else self._owe()
                replies = await self._server.run(database, steps[at:end], owed)
                if not replies and gone():  # the first one is amid its parts
                    raise Cut("the client went")
            if replies:
                at += len(replies)
                await self._after_a_failed_login()
                await self._send(replies)

    async def _after_a_failed_login(self) -> None:
        """Wait as long as the reply to a login that failed has to, whatever command asked."""
        if self._session.delay_s:
            delay_s, self._session.delay_s = self._session.delay_s, 0.0
            await asyncio.sleep(delay_s)
            await self._place.turn()  # many may wake at once

    def _owe(self) -> OwedBytes:
        """Begin to count the bytes of replies that this client is owed."""
        self._owed.begin(self._session.protocol)
        return self._owed

    def _tell(self, step: Tell) -> None:
        """A reply that needs no store; it is sent with others."""
        replies = [told(step)]
        self._session.service.counts.note(replies)
        protocol = self._session.protocol
        self._unsent += [encode(reply, protocol) for reply in self._session.sent(replies)]

    @property
    def _is_late(self) -> bool:
        return self._loop.time() - self._since > TURN_S

    async def _breathe(self) -> None:
        """Let others have their turn, if this one has gone on for long."""
        if self._is_late:
            await asyncio.sleep(0)
            self._since = self._loop.time()

    def _push_soon(self, data: bytes) -> None:
        """Send what was not asked for; called from any thread, as monitors are told from there."""
        self._loop.call_soon_threadsafe(self._push, data)

    def _push(self, data: bytes) -> None:
        """Send what was not asked for; who does not read it is cut off."""
        transport = self._writer.transport
        if transport.get_write_buffer_size() > OUTPUT_MAX_BYTES:
            transport.abort()
        elif not transport.is_closing():
            self._writer.write(self._taken() + data)

    def _taken(self) -> bytes:
        data = b"".join(self._unsent)
        self._unsent.clear()
        return data

    async def _flush(self) -> None:
        """Send what was told."""
        if self._unsent:
            self._writer.write(self._taken())
            await self._writer.drain()

    async def _send(self, replies: list[Reply]) -> None:
        """Send replies, piece by piece: the next one when the client has read enough."""
        session, owed = self._session, self._session.owed
        session.service.counts.note(replies)
        session.service.counts.note(owed.failed)
        pieces: deque[bytes] = deque()
        protocol = session.protocol
        for reply in session.sent(replies):
            if type(reply) is Made:
                pieces += reply.pieces
            else:
                pieces.append(encode(reply, protocol))
        replies.clear()  # so that what was sent is freed
        while pieces:
            size = 0
            some: list[bytes] = []
            while pieces and (not some or size + len(pieces[0]) <= WRITE_BYTES):
                size += len(pieces[0])
                some.append(pieces.popleft())
            self._writer.write(some[0] if len(some) == 1 else b"".join(some))
            del some
            await self._writer.drain()
