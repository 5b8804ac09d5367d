"""Where a server listens: its sockets, opened and bound; and how many files it may have open.

Invariants: nothing listens beyond loopback without a password; a Unix socket that a living server
has is never taken, that of a dead one is replaced, and it goes with its server, unless another one
has its name by then; the limit of open files is only ever raised, and never beyond what the system
allows without asking. Accepts no client.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
import ssl
import stat
import time
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

from logstore.errors import Error, FileSystemError, UsageError
from logstore.fs import LOCAL
from logstore.wire.users import Users

STORE_FILES = 512  # for what the stores have open


log = logging.getLogger("logstore.server")
BACKLOG = 1024  # clients that came together
KEEP_ALIVE_S = 300  # as tcp-keepalive: a client whose machine is gone is found out
LOCK_WAIT_S = 5.0
AUTH_TIMEOUT_S = 10.0
HANDSHAKE_TIMEOUT_S = 5.0
TLS_BUFFER_BYTES = 32 * 1024  # a record has 16 KiB; asyncio would take 256 KiB for each
TLS_CLOSE_S = 2.0


def allow_files(clients_max: int) -> int:
    """Raise the limit for so many clients; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients_max + STORE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return clients_max
    return max(1, min(clients_max, soft - STORE_FILES))


class Listen(NamedTuple):
    """Where a server listens, and how long it waits for who is not logged in."""

    host: str | None = "127.0.0.1"
    port: int = 6379
    unix_socket: Path | None = None
    unix_socket_mode: int | None = None  # who may connect; None: as the umask says
    tls: ssl.SSLContext | None = None
    auth_timeout_s: float = AUTH_TIMEOUT_S  # from when a client came
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S  # of TLS, the same

    @property
    def exposed(self) -> bool:
        """Whether other machines can reach it."""
        if self.host is None:
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    def check(self, users: Users) -> None:
        """UsageError for an address that others can reach, if the default user is open to all;
        from now on it cannot be made so."""
        if self.exposed and users.open:
            raise UsageError(
                f"{self.host} can be reached from other machines: give the default user a password "
                "(--requirepass-file, --aclfile), or listen on 127.0.0.1"
            )
        users.exposed = self.exposed


async def tcp_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host. OSError if one is taken."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(addresses):
            listening = socket.socket(family, kind, number)
            made.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
    except BaseException:
        for listening in made:
            listening.close()
        raise
    return made


class UnixSocket:
    """A listening socket with a name in the file system."""

    def __init__(self, path: Path, mode: int | None = None) -> None:
        self.path = path.absolute()
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _alone_in(self.path.parent):  # two that start together do not take each other's
                self._make_way()
                try:
                    made.bind(os.fspath(self.path))
                except OSError as exc:
                    raise _cannot(self.path, exc) from exc
                if mode is not None:  # nobody can connect before it listens
                    LOCAL.set_mode(self.path, mode)
                made.setblocking(False)
                made.listen(BACKLOG)
                self._inode = LOCAL.stat(self.path).inode
        except BaseException:
            made.close()
            raise
        self.socket = made

    def _make_way(self) -> None:
        """Remove what a dead server left. FileSystemError if a server lives behind it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(self.path))
            except FileNotFoundError:
                return
            except ConnectionRefusedError:
                if not stat.S_ISSOCK(LOCAL.stat(self.path).mode):
                    raise FileSystemError(
                        f"{self.path} is no socket: move it away, or give another path"
                    ) from None
                LOCAL.remove(self.path)
                return
            except BlockingIOError:
                pass  # so many wait for it that there is no room
            except OSError as exc:
                raise _cannot(self.path, exc) from exc
        raise FileSystemError(
            f"another server listens on {self.path}: stop it, or give another path"
        )

    def close(self) -> None:
        """Remove its name, if it is still its own. The socket was closed by who listened."""
        try:
            if LOCAL.stat(self.path).inode == self._inode:
                LOCAL.remove(self.path)
        except FileNotFoundError:
            pass
        except Error as exc:
            log.warning("the socket %s stays: %s", self.path, exc)


def _cannot(path: Path, exc: OSError) -> FileSystemError:
    return FileSystemError(f"cannot listen on {path}: {exc.strerror or exc}; give another path")


def address_shown(address: object) -> str:
    """Where a client is, for people."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"


def keep_alive(taken: socket.socket) -> None:
    """Have the system find out when the machine of a client is gone."""
    if taken.family == socket.AF_UNIX:
        return
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S // 3)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class _Tls(sslproto.SSLProtocol):
    """TLS between a transport and a protocol, with small buffers."""

    max_size = TLS_BUFFER_BYTES


def under_tls(
    served: asyncio.BaseProtocol, tls: ssl.SSLContext, handshake_s: float
) -> asyncio.BaseProtocol:
    """What stands between a client's transport and the protocol that serves it."""
    made = cast(Callable[..., asyncio.BaseProtocol], _Tls)  # typeshed wants whole seconds
    return made(
        asyncio.get_running_loop(),
        served,
        tls,
        None,
        server_side=True,
        ssl_handshake_timeout=handshake_s,
        ssl_shutdown_timeout=TLS_CLOSE_S,
    )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, in which sockets are made and removed."""
    try:
        held = LOCAL.open_named(folder)
    except FileNotFoundError as exc:
        raise _cannot(folder, exc) from exc
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not held.try_lock(exclusive=True):
            if time.monotonic() > deadline:
                raise FileSystemError(
                    f"another process has locked {folder}: give another path for the socket"
                )
            time.sleep(0.01)
        yield
    finally:
        held.close()


OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
