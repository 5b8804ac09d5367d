"""The web view as a server of its own: a socket, and the application behind it.

Invariants: the socket listens before the address is told, so that it can be opened at once; SIGINT
and SIGTERM end it after the requests at hand.
"""

from __future__ import annotations

import socket

import uvicorn

from logstore.api.store import Store
from logstore.web.app import make_app
from logstore.web.guard import LOOPBACK

GRACE_S = 5
BACKLOG = 128


class Server:
    """One store, served to browsers."""

    def __init__(self, store: Store[bytes], host: str, port: int, token: str, *, write: bool):
        """Set what is served, and where.

        Args:
            store: an open store; the caller closes it.
            host: the address to listen on.
            port: 0: any free one.
            token: what a browser must show; empty: nothing.
            write: whether something can be changed.
        """
        self._host, self._port, self._token = host, port, token
        hosts = LOOPBACK if host in LOOPBACK else ()
        app = make_app(store, write=write, hosts=hosts, token=token)
        self._config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=GRACE_S, server_header=False
        )
        self._socket: socket.socket | None = None

    def bind(self) -> None:
        """Listen; OSError if the address cannot be had."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server(
            (self._host, self._port), family=family, backlog=BACKLOG
        )
        self._port = self._socket.getsockname()[1]

    def address(self) -> str:
        """The address to open in a browser, with the token if there is one."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        token = f"?token={self._token}" if self._token else ""
        return f"http://{host}:{self._port}/{token}"

    def run(self) -> None:
        """Serve until a signal comes."""
        assert self._socket is not None
        uvicorn.Server(self._config).run(sockets=[self._socket])
