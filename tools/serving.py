"""Serves a store from the start of ``logstore serve`` to its end.

Invariants: it is ready when it listens, and says so then; what was accepted is finished before the
stores are closed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import __version__, logger
from logstore.errors import FileSystemError, OptionError
from logstore.loading import load
from logstore.tools import options
from logstore.tools.output import Output
from logstore.tools.service_manager import ServiceManager, log_as_a_service
from logstore.tools.watched import Watched

PASSWORD_MAX_BYTES = 4096
PEM_MAX_BYTES = 1 << 20
DATABASE_MAX = 1023
SWITCH_S = 0.001  # the event loop waits so long for a thread that computes, not 5 ms
GC_OBJECTS = 4000  # that are made before the collector looks: about 2 ms, in which nobody is served
GC_YOUNG = 50  # such looks before it looks at those again that are left of them
if TYPE_CHECKING:
    from logstore.options import Sync
    from logstore.wire.server.listening import Listen
    from logstore.wire.service import Service
    from logstore.wire.table import Profile

log = logging.getLogger("logstore.server")


def serve(
    output: Output,
    path: Path,
    *,
    host: str,
    port: int,
    unixsocket: Path | None,
    requirepass_file: Path | None,
    aclfile: Path | None,
    auth_timeout: float,
    tls_cert: Path | None,
    tls_key: Path | None,
    compat: Profile,
    sync: Sync,
    databases: tuple[str, ...],
    allow_flush: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Serve a store, and those of other databases, until a signal or SHUTDOWN ends it."""
    from logstore.wire.catalogue import users_of
    from logstore.wire.server.listening import Listen
    from logstore.wire.service import Service

    logger.prepare()
    manager = ServiceManager()
    _log_as_a_service()
    users = users_of(compat, _password(requirepass_file), aclfile)
    listen = Listen(host, port, unixsocket, _tls(tls_cert, tls_key), auth_timeout)
    listen.check(users)
    if aclfile is not None:
        _warn_of(aclfile)
    others = _databases(path, databases)
    with ExitStack() as stack:
        stores = {
            number: stack.enter_context(options.opened(each, sync=sync))
            for number, each in {0: path, **others}.items()
        }
        service = Service(
            stores.pop(0), users, users_file=aclfile, allow_flush=allow_flush, others=stores
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            watched = Watched(manager, metrics_host, metrics_port)
            runner.run(_serve(output, service, listen, watched))
        log.info(
            "ended: %d connections, %d commands",
            service.counts.connections,
            service.counts.commands,
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop where it is installed (the extra ``serve``), as one request
    by itself takes a third fewer instructions with it; None: asyncio, which has its own."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = load("uvloop").new_event_loop
    except ModuleNotFoundError:
        return None
    return found


def _databases(path: Path, given: tuple[str, ...]) -> dict[int, Path]:
    """The stores of the databases besides number 0; each must be another one."""
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
    from logstore.fs import LOCAL

    found = LOCAL.read_named(path, PASSWORD_MAX_BYTES).strip(b"\r\n")
    if not found:
        raise OptionError(f"{path} holds no password")
    _warn_of(path)
    return found


def _warn_of(path: Path) -> None:
    """Say so if a file with passwords can be read by others."""
    from logstore.fs import LOCAL

    mode = LOCAL.stat(path).mode
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("%s can be read by others than its owner: chmod 600 %s", path, path)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise OptionError("--tls-key needs --tls-cert")
        return None
    from logstore.fs import LOCAL

    if key is None and b"PRIVATE KEY-----" not in LOCAL.read_named(certificate, PEM_MAX_BYTES):
        raise OptionError(f"{certificate} holds no private key: give its file with --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as exc:
        raise OptionError(f"{certificate} cannot be used for TLS: {exc}") from exc
    return context


def _log_as_a_service() -> None:
    """Starts and ends, and who logged in, are told also without --verbose."""
    log_as_a_service()
    for name in ("logstore.server", "logstore.audit"):
        logging.getLogger(name).setLevel(logging.INFO)


class _End(asyncio.Event):
    """Set once, by what ends the server; it knows by what."""

    by = "SHUTDOWN"

    def at_signals(self) -> None:
        """Not the loop's own handlers: they lose a signal that comes among hundreds of wake-ups."""
        loop = asyncio.get_running_loop()

        def ended(number: int, _frame: object) -> None:
            self.by = signal.Signals(number).name
            with suppress(RuntimeError):  # the loop ended before
                loop.call_soon_threadsafe(self.set)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ended)


async def _serve(output: Output, service: Service, listen: Listen, watched: Watched) -> None:
    from logstore.wire.server.listening import allow_files
    from logstore.wire.server.server import Server

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
        raise FileSystemError(f"cannot listen on {listen.host}:{listen.port}: {exc}") from exc
    watched.begin(service, end)
    if output.json:
        told = {"path": str(service.store.path), "host": listen.host, "port": service.port}
        if watched.metrics_port:
            told["metrics_port"] = watched.metrics_port
        output.json_object(told)
    else:
        output.line(f"{service.store.path} is served on {listen.host}:{service.port}")
    output.flush()
    where = _where(listen, service.port)
    log.info(
        "logstore %s serves %s on %s, pid %d", __version__, service.store.path, where, os.getpid()
    )
    if watched.metrics_port:
        log.info("metrics are at %s:%d", watched.metrics_host, watched.metrics_port)
    watched.manager.ready(f"{service.store.path} is served on {where}")
    # What is loaded now stays: a collection that walks all of it would hold up every client.
    gc.collect()
    gc.freeze()
    # A request of ten thousand entries makes as many objects, none of them garbage in a circle:
    # with Python's own thresholds, 700 and 10, the collector takes a third of its time, most of it
    # for those that it has seen before. With 20,000 one look takes up to 15 ms.
    gc.set_threshold(GC_OBJECTS, GC_YOUNG, 10)
    alive = asyncio.create_task(watched.manager.keep_alive())
    try:
        await end.wait()
        log.info("%s: ending, %d clients are connected", end.by, len(service.clients))
    finally:
        watched.manager.stopping("what was accepted is finished, then the stores are closed")
        alive.cancel()
        await server.close()
        watched.close()


def _where(listen: Listen, port: int) -> str:
    """The addresses for people."""
    found = [f"{listen.host}:{port}" + (" (TLS)" if listen.tls else "")] if listen.host else []
    return " and ".join([*found, *([str(listen.unix_socket)] if listen.unix_socket else [])])
