"""Serves a store from the start of ``logstore serve`` to its end, and informs those who look after
it: systemd by its notification protocol, Prometheus, and the log.

Invariants: the server says that it is ready when it listens. Accepted requests are finished before
the stores are closed. Without ``NOTIFY_SOCKET`` nothing is sent; a service manager that cannot be
reached is a line in the log, and ends nothing. The variables of its protocol are removed from the
environment, so that children do not speak for this process. Threads of their own read the numbers
for Prometheus; the event loop is asked only whether it turns.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import __version__, logger
from logstore.api.opening import opened_of
from logstore.errors import FileSystemError, OptionError
from logstore.fs import LOCAL
from logstore.loading import load
from logstore.telemetry.gathering import Family, gather, one, store_trouble
from logstore.tools import command_options as options
from logstore.tools.command_output import Output
from logstore.tools.service.listen_refusals import refusal
from logstore.wire.catalogue import users_of
from logstore.wire.server.listening import Listen, allow_files
from logstore.wire.server.server import Server
from logstore.wire.service import Service

if TYPE_CHECKING:
    from logstore.tools.service.metrics_endpoint import MetricsEndpoint
    from logstore.tools.service.serve_commands import ServeOptions


PASSWORD_MAX_BYTES = 4096
PEM_MAX_BYTES = 1 << 20
DATABASE_MAX = 1023
SWITCH_S = 0.001  # the event loop waits so long for a computing thread, instead of 5 ms
GC_OBJECTS = 4000  # new objects before a collection, which takes about 2 ms
GC_YOUNG = 50  # collections of new objects before one of those that survived

log = logging.getLogger("logstore.server")


def serve(output: Output, path: Path, chosen: ServeOptions) -> None:
    """Serve a store, and those of other databases, until a signal or SHUTDOWN ends it."""
    logger.prepare()
    manager = ServiceManager()
    log_as_a_service()
    users = users_of(chosen.compat, _password(chosen.requirepass_file), chosen.aclfile)
    tls = _tls(chosen.tls_cert, chosen.tls_key)
    listen = Listen(
        chosen.host,
        chosen.port,
        chosen.unixsocket,
        chosen.unixsocket_mode,
        tls,
        chosen.auth_timeout.total_seconds(),
    )
    listen.check(users)
    if chosen.aclfile is not None:
        _warn_of(chosen.aclfile)
    others = _databases(path, chosen.databases)
    with ExitStack() as stack:
        stores = {
            number: stack.enter_context(options.opened(each, sync=chosen.sync))
            for number, each in {0: path, **others}.items()
        }
        service = Service(
            stores.pop(0),
            users,
            users_file=chosen.aclfile,
            allow_flush=chosen.allow_flush,
            others=stores,
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(output, service, listen, manager, chosen))
        counts = service.counts
        log.info("ended: %d connections, %d commands", counts.connections, counts.commands)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop where it is installed (the extra ``serve``), as one request
    by itself takes a third fewer instructions with it; None: asyncio, which has its own."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = load("uvloop").new_event_loop
    except ModuleNotFoundError:
        return None
    return found


def _databases(path: Path, given: tuple[str, ...]) -> dict[int, Path]:
    """The stores of databases 1 and up; all must differ."""
    found: dict[int, Path] = {}
    known = {path.resolve()}
    for text in given:
        number, _, other = text.partition("=")
        if not (number.isdecimal() and other and 0 < int(number) <= DATABASE_MAX):
            raise OptionError(f"--database {text}: give N=PATH, N from 1 to {DATABASE_MAX}")
        if int(number) in found or Path(other).resolve() in known:
            raise OptionError(f"--database {text}: this number, or this store, was given before")
        found[int(number)] = Path(other)
        known.add(Path(other).resolve())
    return found


def _password(path: Path | None) -> bytes:
    if path is None:
        return b""
    found = LOCAL.read_named(path, PASSWORD_MAX_BYTES).strip(b"\r\n")
    if not found:
        raise OptionError(f"{path} holds no password")
    _warn_of(path)
    return found


def _warn_of(path: Path) -> None:
    """Warn of a file with passwords that others can read."""
    mode = LOCAL.stat(path).mode
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("%s can be read by others than its owner: chmod 600 %s", path, path)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise OptionError("--tls-key needs --tls-cert")
        return None
    if key is None and b"PRIVATE KEY-----" not in LOCAL.read_named(certificate, PEM_MAX_BYTES):
        raise OptionError(f"{certificate} holds no private key: give its file with --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as exc:
        raise OptionError(f"{certificate} cannot be used for TLS: {exc}") from exc
    return context


class _End(asyncio.Event):
    """The event that ends the server, with what set it first."""

    by = "SHUTDOWN"

    def at_signals(self) -> None:
        """Install handlers. The loop's own lose a signal among hundreds of wake-ups."""
        loop = asyncio.get_running_loop()

        def ended(number: int, _frame: object) -> None:
            self.by = signal.Signals(number).name
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.set)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ended)


async def _serve(
    output: Output, service: Service, listen: Listen, manager: ServiceManager, chosen: ServeOptions
) -> None:
    allowed = allow_files(service.clients_max)
    if allowed < service.clients_max:
        log.warning("the limit of open files leaves room for %d clients", allowed)
        service.clients_max = allowed
    sys.setswitchinterval(SWITCH_S)
    end = _End()
    end.at_signals()
    service.shutdown = end.set
    server = Server(service)
    try:
        await server.start(listen)
    except FileSystemError:
        raise
    except OSError as exc:
        raise refusal(listen.host or "*", listen.port, exc) from exc
    metrics, host = None, chosen.metrics_host
    if chosen.metrics_port is not None:
        metrics = _metrics(service, end, host, chosen.metrics_port)
    if output.json:
        shown = {"path": str(service.store.path), "host": listen.host, "port": service.port}
        if metrics is not None:
            shown["metrics_port"] = metrics.port
        output.json_object(shown)
    else:
        output.line(f"{service.store.path} is served on {listen.host}:{service.port}")
    output.flush()
    where = _where(listen, service.port)
    log.info(
        "logstore %s serves %s on %s, pid %d", __version__, service.store.path, where, os.getpid()
    )
    if metrics is not None:
        log.info("metrics are at %s:%d", host, metrics.port)
    manager.ready(f"{service.store.path} is served on {where}")
    # Objects that exist now stay: a collection of them would delay every client.
    gc.collect()
    gc.freeze()
    # A request of ten thousand entries makes as many objects, none of them in a cycle. With
    # Python's own thresholds, 700 and 10, collections take a third of its time, most of it for
    # objects that survived before. With 20,000 one collection takes up to 15 ms.
    gc.set_threshold(GC_OBJECTS, GC_YOUNG, 10)
    alive = asyncio.create_task(manager.keep_alive())
    try:
        await end.wait()
        log.info("%s: ending, %d clients are connected", end.by, len(service.clients))
    finally:
        manager.stopping("what was accepted is finished, then the stores are closed")
        alive.cancel()
        await server.close()
        if metrics is not None:
            metrics.close()


def _where(listen: Listen, port: int) -> str:
    """The addresses for people."""
    found = [f"{listen.host}:{port}" + (" (TLS)" if listen.tls else "")] if listen.host else []
    return " and ".join([*found, *([str(listen.unix_socket)] if listen.unix_socket else [])])


# -- Prometheus -----------------------------------------------------------------------------------
TURN_S = 5.0  # a healthy event loop turns more often


def _metrics(service: Service, end: asyncio.Event, host: str, port: int) -> MetricsEndpoint:
    """Start answering Prometheus; called in the event loop."""
    module = load("logstore.tools.service.metrics_endpoint")
    loop = asyncio.get_running_loop()
    endpoint: MetricsEndpoint = module.MetricsEndpoint(
        host,
        port,
        lambda: families(service),
        lambda: trouble(service, loop),
        lambda: not end.is_set(),
    )
    return endpoint


def families(service: Service) -> list[Family]:
    """The numbers of the server and of its stores; several stores have their number as a label."""
    stores = [(str(number), database.store) for number, database in service.databases.items()]
    found: dict[str, Family] = {}
    for number, store in stores:
        for family in gather(opened_of(store)):
            if len(stores) > 1:
                family.labels = ("database", *family.labels)
                family.samples = [((number, *at), value) for at, value in family.samples]
            if family.name in found:
                found[family.name].samples += family.samples
            else:
                found[family.name] = family
    return [*found.values(), *_of_server(service)]


def _of_server(service: Service) -> Iterator[Family]:
    counts, clients = service.counts, list(service.clients.values())
    blocked = sum(client.unblock is not None for client in clients)
    yield one("logstore_server_clients", "Clients that are connected.", len(clients))
    yield one("logstore_server_blocked_clients", "Of them, those that wait.", blocked)
    yield one("logstore_server_clients_max", "As many may be.", service.clients_max)
    yield one("logstore_server_connections", "Connections taken.", counts.connections, "counter")
    yield one("logstore_server_rejected", "Connections refused.", counts.rejected, "counter")
    yield one("logstore_server_commands", "Commands done.", counts.commands, "counter")
    errors = Family("logstore_server_errors", "Replies that are errors.", ("code",), "counter")
    for code, number in list(counts.errors.items()):
        errors.add(number, code)
    yield errors


def trouble(service: Service, loop: asyncio.AbstractEventLoop) -> str:
    """Why the service does not do its work; empty: it does."""
    for database in service.databases.values():
        if found := store_trouble(opened_of(database.store)):
            return found
    turned = threading.Event()
    loop.call_soon_threadsafe(turned.set)
    return "" if turned.wait(TURN_S) else f"the event loop did not turn for {TURN_S:g} s"


# -- the service manager --------------------------------------------------------------------------
SEND_TIMEOUT_S = 5.0  # the queue of the manager's socket may be full
_PRIORITIES = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)  # the variables of sd-daemon(3)
_DEBUG = 7
service_log = logging.getLogger("logstore.service")


class ServiceManager:
    """The service manager of this process, if it wants notifications (``Type=notify``)."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        watched_us = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", "") or str(os.getpid())
        watched = bool(self._address) and watched_us.isdecimal() and watched_pid == str(os.getpid())
        self.watchdog_s = int(watched_us) / 1e6 if watched else 0.0
        """Seconds without a sign of life after which the manager kills this process; 0: never."""
        self._warned = False

    def ready(self, status: str) -> None:
        """Say that the command is ready; ``systemctl status`` shows ``status``."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}", SEND_TIMEOUT_S)

    def stopping(self, status: str) -> None:
        """Say that the command ends; the manager waits as long as its unit says."""
        self._send(f"STOPPING=1\nSTATUS={status}", SEND_TIMEOUT_S)

    def alive(self) -> None:
        """Send a sign of life, without waiting: the next one comes soon."""
        self._send("WATCHDOG=1", 0.0)

    async def keep_alive(self) -> None:
        """Show the manager that the event loop turns, twice as often as it wants to see it. Returns
        at once if it does not look; else it runs until it is cancelled."""
        while self.watchdog_s:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def _send(self, message: str, timeout_s: float) -> None:
        if not self._address:
            return
        # A name that begins with @ has no file: Linux's abstract namespace begins with a zero byte.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notified:
                notified.settimeout(timeout_s)
                notified.connect(address)
                notified.send(message.encode("utf-8", "surrogateescape"))
        except OSError as exc:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            service_log.log(
                level, "the service manager at %s cannot be told: %s", self._address, exc
            )


class _ForTheJournal(logging.Formatter):
    """Lines with a priority in front, which journald removes; it adds the time itself."""

    def format(self, record: logging.LogRecord) -> str:
        """Each line of a traceback gets the priority, too."""
        text = super().format(record)
        at = (number for level, number in _PRIORITIES if record.levelno >= level)
        prefix = f"<{next(at, _DEBUG)}>"
        return "\n".join(prefix + line for line in text.splitlines())


def log_as_a_service() -> None:
    """Have the handlers of ``logstore`` write lines for a log that is kept: with the moment (UTC,
    to the millisecond), the level and the logger's name, or as journald wants them. Starts and
    ends, and who logged in, are told also without --verbose."""
    for name in ("logstore.server", "logstore.audit"):
        logging.getLogger(name).setLevel(logging.INFO)
    shown: logging.Formatter
    if _is_the_journal():
        shown = _ForTheJournal("%(name)s: %(message)s")
    else:
        shown = logging.Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        shown.converter = time.gmtime
    for handler in logging.getLogger("logstore").handlers:
        handler.setFormatter(shown)


def _is_the_journal() -> bool:
    """Whether stderr is the socket of the journal."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    if sys.stderr is None or not (device.isdecimal() and inode.isdecimal()):
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):  # no file
        return False
    return (found.st_dev, found.st_ino) == (int(device), int(inode))
