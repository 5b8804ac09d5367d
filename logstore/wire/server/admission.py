"""Admission of clients: they are accepted, counted, and served in part until they are logged in.

A *stranger* is a client that has to give a password, or to finish a TLS handshake. Strangers share
a part of the places; each is cut when its time is over. What they send is read in small pieces, one
piece a turn (``turns``), and a transport or TLS is made for one only after it has sent something.
The loop does not watch their sockets itself: if a thousand send, or go, in one moment, it hears of
a few in each turn. When all their places are taken, a newcomer takes the place of the oldest, if
that had a second; until then newcomers wait in the system's queue.

Invariants: a connection has a place from ``accept`` until its file is closed, so there are hardly
more files than places. A client that is in is never cut for a newcomer. A stranger causes one line
of log a minute at most. Knows no command.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

from logstore.wire.log_limiter import Lasting, Seldom
from logstore.wire.resp.reply import Failure, encode
from logstore.wire.server.listening import (
    OUT_OF_FILES,
    Listen,
    address_shown,
    keep_alive,
    under_tls,
)
from logstore.wire.server.turns import Turns, Watch
from logstore.wire.service import Service
from logstore.wire.session import Session

STRANGERS_MAX = 1024
STRANGERS_PART = 4  # of all places, at most one in so many is a stranger's
STAY_S = 1.0  # that a stranger keeps its place though others want it
SWEEP_S = 0.25  # between looks for those whose time is over
ACCEPTS = 16  # at a time
ACCEPTS_STRANGERS = 4
PAUSE_S = 0.2  # when the system gives no file
PIECE_BYTES = 2048  # that a stranger sends are read at a time
OWED_BYTES = 4096  # to a stranger, before it is read from again
Factory = Callable[["Admitted"], asyncio.StreamReaderProtocol]


class Admitted(asyncio.BufferedProtocol):
    """One connection's place. For a stranger it stands between the socket and what serves it: it
    reads, and the transport only writes."""

    def __init__(
        self,
        arrivals: Arrivals,
        session: Session,
        taken: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.session = session
        self.socket = taken  # whoever has the transport closes it; before there is one, this does
        self.since_s = time.monotonic()  # when it became a stranger
        self.secure = tls is None  # the handshake is done
        self.task: asyncio.Task[None] | None = None  # which serves it
        self._arrivals = arrivals
        self.others_ask = arrivals.turns.others_ask  # something is asked by one who is in
        self._tls = tls
        self.connecting = False  # the socket becomes a transport, or is one
        self.overdue = False  # it is cut when its turn comes
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.BaseProtocol | None = None
        self._between = False
        self._data = b""  # read, and not handed over yet
        self._ended = False  # it sends nothing any more
        self._busy = False  # what was read is still worked on
        self._held = True
        self._is_cut = False
        # A transaction ends connections from a thread.
        session.kill = partial(asyncio.get_running_loop().call_soon_threadsafe, self.cut)

    # -- between the socket and what serves it -------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is a transport now: it has sent something before."""
        # Every loop gives one that reads and writes; uvloop's is of no class of asyncio.
        taken = cast("asyncio.Transport", transport)
        self._transport, self._between = taken, True
        taken.set_write_buffer_limits(OWED_BYTES)
        taken.pause_reading()
        if self._is_cut:
            taken.abort()
        else:
            self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next piece goes: strangers share one buffer."""
        return self._arrivals.piece

    def buffer_updated(self, nbytes: int) -> None:
        """A piece came though nobody asked: TLS resumes what it has paused."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._data += bytes(self._arrivals.piece[:nbytes])
        self._arrivals.turns.ask(self._turn)

    def eof_received(self) -> bool:
        """The same of the end."""
        self._ended = True
        self._arrivals.turns.ask(self._turn)
        return True

    def watch(self) -> None:
        """Have a turn when the client has sent something, or went. The socket does not tell again
        of what the transport has read while a request was worked on."""
        if self._data or self._ended:
            self._arrivals.turns.ask(self._turn)
        elif self._held and not (self._busy or self._is_cut):
            self._arrivals.watch.watch(self.socket, self._turn)

    def _turn(self) -> None:
        """Read a piece, and hand it over."""
        is_in = self._transport is not None and not self._between
        if is_in or not self._held or self._is_cut or self._busy:
            return
        try:
            size = self.socket.recv_into(self._arrivals.piece)
            self._data += bytes(self._arrivals.piece[:size])
            self._ended = self._ended or not size
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.cut()
            return
        if self._transport is not None:
            self._go_on()
        elif self._data:
            self._arrivals.connect(self)
        elif self._ended:
            self.cut()
        else:
            self.watch()

    def _go_on(self) -> None:
        """Hand over what there is; then wait for more, if there may be more."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if self._data:
            self._give()
        if self._ended:
            inner = self._inner
            stays = isinstance(inner, asyncio.Protocol | asyncio.BufferedProtocol) and (
                inner.eof_received()
            )
            if not stays:
                self._transport.close()
        elif self._between:
            self.watch()

    def _give(self) -> None:
        """Hand over what was read."""
        assert self._transport is not None
        data, self._data = self._data, b""
        if self._inner is None:
            self._inner = self._arrivals.inner(self, self._tls)
            self._inner.connection_made(self._transport)
        if isinstance(self._inner, asyncio.BufferedProtocol):
            while data and not self._transport.is_closing():
                view = memoryview(self._inner.get_buffer(len(data)))
                size = min(len(view), len(data))
                view[:size] = data[:size]
                self._inner.buffer_updated(size)
                data = data[size:]
        elif data and isinstance(self._inner, asyncio.Protocol):
            self._inner.data_received(data)

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed behind this call."""
        self.release()
        if self._inner is not None:
            self._arrivals.turns.ask(partial(self._end, exc))

    def _end(self, exc: Exception | None) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)
        if self.task is not None:
            self.task.cancel()  # it may sleep after a wrong password

    # -- what the one who serves it says --------------------------------------------------------
    @property
    def stranger(self) -> bool:
        """Whether the client is not in yet."""
        return self in self._arrivals.strangers

    def begin(self, transport: asyncio.WriteTransport) -> None:
        """A task serves the client, behind the handshake if there is one."""
        self.task = asyncio.current_task()
        self.secure = True
        if self._transport is None:  # it was in at once: nothing stood between
            self._transport = cast("asyncio.Transport", transport)
        if self._is_cut:
            transport.abort()
        elif self.session.authenticated:
            self.follow(transport)
        else:
            transport.set_write_buffer_limits(OWED_BYTES)

    async def turn(self) -> None:
        """Wait for a turn, if it is a stranger's. ConnectionError if it went meanwhile."""
        if self.stranger:
            await self._arrivals.turns.wait()
        if not self._held:
            raise ConnectionError("the client went")

    def ready(self) -> None:
        """What was read is worked off: a stranger may be read from again."""
        self._busy = False
        if self._between:
            self.watch()

    def busy(self) -> None:
        """What was read is being worked on."""
        self._busy = True
        if not self._between:
            self.others_ask()

    def follow(self, transport: asyncio.WriteTransport) -> None:
        """Look whether the client logged in meanwhile, or has to do it again after RESET."""
        if not self._held or self._is_cut or self.session.authenticated != self.stranger:
            return
        if self.stranger:
            transport.set_write_buffer_limits()
            self._pass_on()
            self._arrivals.admit(self)
        else:
            self.since_s = time.monotonic()
            self._arrivals.estrange(self)

    def _pass_on(self) -> None:
        """Stand between no longer: the client is in."""
        transport, inner = self._transport, self._inner
        if not self._between or transport is None or inner is None or transport.is_closing():
            return
        self._between = False
        self._arrivals.watch.forget(self.socket)
        if self._data:
            self._give()
        transport.set_write_buffer_limits()
        transport.set_protocol(inner)
        transport.resume_reading()

    def cut(self) -> None:
        """End the connection at once."""
        self._is_cut = True
        if self._transport is not None:
            self._transport.abort()
        elif not self.connecting:
            self.release()
            self.socket.close()

    def release(self) -> None:
        """Give the place back; safe to repeat. The socket is closed behind it."""
        if self._held:
            self._held = False
            self._arrivals.watch.forget(self.socket)
            self._arrivals.left(self)


class Arrivals:
    """Accepts the clients of a server."""

    def __init__(self, service: Service, factory: Factory) -> None:
        self.turns = Turns()
        self.watch = Watch(self.turns)
        self.piece = memoryview(bytearray(PIECE_BYTES))
        self.strangers: dict[Admitted, None] = {}  # in the order they became so
        self._service = service
        self._factory = factory
        self._listen = Listen()
        self._places: set[Admitted] = set()
        self._sockets: dict[socket.socket, ssl.SSLContext | None] = {}
        self._waiting: set[socket.socket] = set()  # accept nothing for now
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._resumer: asyncio.TimerHandle | None = None
        self._refused = Seldom()
        self._overdue = Seldom()
        self._failed = Seldom()
        self._full = Lasting(
            "%d clients that did not log in hold all places that such may have: those that came "
            "first make room for others",
            "there is room again for clients that did not log in",
        )
        self._out_of_files = Lasting(
            "the system gives no file for another client: %s", "the system gives files again"
        )

    # -- listening ------------------------------------------------------------------------------
    def listen(self, listening: socket.socket, tls: ssl.SSLContext | None, how: Listen) -> None:
        """Accept clients of a socket."""
        self._listen = how
        self._sockets[listening] = tls
        asyncio.get_running_loop().add_reader(listening, self._ready, listening)

    def close(self) -> None:
        """Accept no more, and cut those who are no more than strangers."""
        for timer in (self._sweeper, self._resumer):
            if timer is not None:
                timer.cancel()
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets.clear()
        self._waiting.clear()
        for place in list(self.strangers):
            place.cut()
        self.watch.close()

    @property
    def strangers_max(self) -> int:
        """How many strangers there may be."""
        return max(1, min(STRANGERS_MAX, self._service.clients_max // STRANGERS_PART))

    def _ready(self, listening: socket.socket) -> None:
        """Somebody waits at a socket. Those who come as strangers are let in one turn at a time."""
        if self._sockets[listening] is None and self._service.open:
            self._accept(listening, ACCEPTS)
        else:
            self._stop(listening)
            self.turns.ask(partial(self._resume_after, listening))

    def _resume_after(self, listening: socket.socket) -> None:
        if listening in self._waiting and self._accept(listening, ACCEPTS_STRANGERS):
            self._resume(listening)

    def _accept(self, listening: socket.socket, most: int) -> bool:
        """Accept some; False if no more can be for a while, then it is tried again by itself."""
        tls = self._sockets[listening]
        comes_in = tls is None and self._service.open
        for _ in range(most):
            if not comes_in and not self._make_room(listening):
                return False
            try:
                taken, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return True
            except OSError as exc:
                if exc.errno in OUT_OF_FILES:
                    self._out_of_files.begin(exc.strerror)
                else:
                    self._failed.warn("accepting a client failed: %s", exc)
                self._later(listening, PAUSE_S)
                return False
            self._out_of_files.end()
            taken.setblocking(False)
            if len(self._places) >= self._service.clients_max and not self._cut_oldest():
                self._refuse(taken, tls)
                continue
            self._take(taken, peer, tls)
        return True

    def _make_room(self, listening: socket.socket) -> bool:
        """A place for a stranger; False if there is none before some time."""
        if len(self.strangers) < self.strangers_max:
            return True
        self._full.begin(len(self.strangers))
        if self._cut_oldest():
            return True
        oldest = next(iter(self.strangers))
        self._later(listening, max(0.01, STAY_S - (time.monotonic() - oldest.since_s)))
        return False

    def _cut_oldest(self) -> bool:
        """Cut the stranger that came first, if it had its time."""
        oldest = next(iter(self.strangers), None)
        if oldest is None or time.monotonic() - oldest.since_s < STAY_S:
            return False
        self._service.counts.rejected += 1
        del self.strangers[oldest]  # its place is not free before its file is closed
        oldest.cut()
        return True

    def _refuse(self, taken: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._service.counts.rejected += 1
        self._refused.warn("the limit of %d clients is reached", self._service.clients_max)
        with taken, suppress(OSError):
            if tls is None:
                taken.send(encode(Failure("ERR max number of clients reached"), 2))

    def _later(self, listening: socket.socket, after_s: float) -> None:
        """Accept nothing for so long, or until a place gets free."""
        self._stop(listening)
        if self._resumer is not None:
            self._resumer.cancel()
        self._resumer = asyncio.get_running_loop().call_later(after_s, self._resume_all)

    def _stop(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(listening)
        self._waiting.add(listening)

    def _resume(self, listening: socket.socket) -> None:
        self._waiting.discard(listening)
        asyncio.get_running_loop().add_reader(listening, self._ready, listening)

    def _resume_all(self) -> None:
        self._resumer = None
        for listening in list(self._waiting):
            self._resume(listening)

    # -- places -----------------------------------------------------------------------------------
    def _take(self, taken: socket.socket, peer: object, tls: ssl.SSLContext | None) -> None:
        keep_alive(taken)
        address, local = address_shown(peer), address_shown(taken.getsockname())
        place = Admitted(self, Session(self._service, address=address, local=local), taken, tls)
        self._places.add(place)
        if tls is not None or not place.session.authenticated:
            self.estrange(place)
            place.watch()
        else:
            self.connect(place)

    def connect(self, place: Admitted) -> None:
        """Make a place's socket a transport."""
        place.connecting = True
        task = asyncio.get_running_loop().create_task(self._connect(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, place: Admitted) -> None:
        inner: asyncio.BaseProtocol = place if place.stranger else self._factory(place)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: inner, place.socket)
        except OSError as exc:
            self._failed.warn("a client from %s is not served: %s", place.session.address, exc)
            place.release()
            place.socket.close()

    def inner(self, place: Admitted, tls: ssl.SSLContext | None) -> asyncio.BaseProtocol:
        """What serves a stranger that has sent something."""
        served = self._factory(place)
        return served if tls is None else under_tls(served, tls, self._listen.handshake_timeout_s)

    def estrange(self, place: Admitted) -> None:
        """Count a client among the strangers."""
        self.strangers[place] = None
        if self._sweeper is None:
            self._sweep()

    def admit(self, place: Admitted) -> None:
        """A stranger is in."""
        self.strangers.pop(place, None)
        self._freed()

    def left(self, place: Admitted) -> None:
        """A connection is closed."""
        self._places.discard(place)
        self.strangers.pop(place, None)
        self._service.end(place.session)
        self._freed()

    def _freed(self) -> None:
        if len(self.strangers) < self.strangers_max // 2:
            self._full.end()
        if self._resumer is not None and len(self.strangers) < self.strangers_max:
            self._resumer.cancel()
            self._resume_all()

    def _sweep(self) -> None:
        """Cut those whose time is over."""
        self._sweeper = None
        now, listen = time.monotonic(), self._listen
        for place in list(self.strangers):
            limit_s, what = listen.handshake_timeout_s, "finish the TLS handshake"
            if place.secure:
                limit_s, what = listen.auth_timeout_s, "log in"
            if now - place.since_s > limit_s and not place.overdue:
                place.overdue = True
                address = place.session.address
                self._overdue.warn(
                    "a client from %s did not %s within %g s", address, what, limit_s
                )
                self.turns.ask(place.cut)  # it may be the time of a thousand
        if self.strangers:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
