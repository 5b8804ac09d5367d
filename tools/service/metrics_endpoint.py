"""What ``logstore serve --metrics-port`` answers over HTTP: /metrics, /health and /ready.

Invariants: it only reads. It has threads of its own, ``ASKERS_MAX`` at most, so its requests do not
delay the server's clients. A request is cut off after ``ASKER_MAX_S``; who has not asked yet, or
does not take its answer, makes room at once for who comes later, so that silent connections hide no
health. There is no password, so it listens on loopback unless another address is given.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from logstore.telemetry.gathering import CONTENT_TYPE, Family, exposition
from logstore.tools.service.listen_refusals import refusal

ASKERS_MAX = 4
ASKER_MAX_S = 10.0
TEXT = "text/plain; charset=utf-8"
Answer = tuple[int, str, bytes]  # status, content type, body


class MetricsEndpoint:
    """Answers until it is closed.

    Args:
        host: where to listen.
        port: 0: any free one.
        families: gives the families of /metrics, read anew each time.
        trouble: why the service is not healthy; empty: it is.
        ready: whether clients are served now.

    Raises:
        FileSystemError: the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        families: Callable[[], Iterable[Family]],
        trouble: Callable[[], str],
        ready: Callable[[], bool],
    ) -> None:
        self._families, self._trouble, self._ready = families, trouble, ready
        try:
            self._server = _Server(host, port, self._answer)
        except OSError as exc:
            raise refusal(host, port, exc, " for metrics") from exc
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="logstore-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str) -> Answer:
        if path == "/metrics":
            return 200, CONTENT_TYPE, exposition(self._families())
        if path == "/health":
            trouble = self._trouble()
            return (503 if trouble else 200), TEXT, f"{trouble or 'ok'}\n".encode()
        if path == "/ready":
            ready = self._ready() and not self._trouble()
            return (200, TEXT, b"ready\n") if ready else (503, TEXT, b"not ready\n")
        return 404, TEXT, b"here are /metrics, /health and /ready\n"


class _Server(ThreadingHTTPServer):
    """A thread for each request, at most ``ASKERS_MAX`` at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        self._room = threading.BoundedSemaphore(ASKERS_MAX)
        self._since_s: dict[Any, float] = {}  # by its socket, when it began; the oldest first
        self._answering: set[Any] = set()  # sockets of requests whose answers are being made
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without the name service, which may hang."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "logstore", self.server_address[1]

    def service_actions(self) -> None:
        """Cut off requests that take too long; called twice a second."""
        for request, since_s in list(self._since_s.items()):
            if time.monotonic() - since_s > ASKER_MAX_S:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a request; cut it off if there are too many."""
        if not self._room.acquire(blocking=False):
            self._make_room()
            if not self._room.acquire(timeout=1):
                self.shutdown_request(request)
                return
        self._since_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """End a request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._since_s.pop(request, None)
            self._room.release()

    def made(self, path: str, request: Any) -> Answer:
        """The answer to a request, which is not cut off while it is made."""
        self._answering.add(request)
        try:
            return self.answer(path)
        finally:
            self._answering.discard(request)

    def _make_room(self) -> None:
        """Cut off who has been here longest of those that keep nothing busy but a place."""
        for request in list(self._since_s):
            if request not in self._answering:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
                return

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a request: its client is gone."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request a connection, and logs none: monitors ask every few seconds."""

    server_version, sys_version = "logstore", ""

    def do_GET(self) -> None:
        """Answer, with the body."""
        self.wfile.write(self._begin())

    def do_HEAD(self) -> None:
        """Answer, without the body."""
        self._begin()

    def _begin(self) -> bytes:
        assert isinstance(self.server, _Server)
        status, kind, body = self.server.made(self.path.partition("?")[0], self.connection)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
