"""Prevents a served store whose numbers or health cannot be asked for, or by which whoever asks
holds up its clients.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logstore.tools.service import metrics_endpoint
from logstore.tools.service.metrics_endpoint import ASKERS_MAX, MetricsEndpoint
from tests.tools.commands import COMMAND, TIMEOUT_S, environment, process
from tests.wire.lines import request


@contextmanager
def served(path: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """What a server told of itself; it ends cleanly."""
    command = [*COMMAND, "serve", str(path), "--port", "0", "--metrics-port", "0", "--json"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as running:
        assert running.stdout is not None
        try:
            yield json.loads(running.stdout.readline())
            running.send_signal(signal.SIGTERM)
            assert running.wait(TIMEOUT_S) == 0
        finally:
            running.kill()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request(method, path)
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Numbers by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_server_tells_its_numbers_and_its_health(tmp_path: Path) -> None:
    others = ("--database", f"2={tmp_path / 'two'}")
    with served(tmp_path / "one", *others) as told:
        port = told["metrics_port"]
        with socket.create_connection(("127.0.0.1", told["port"])) as client:
            for line in ("XADD s * a b", "SELECT 2", "NO", "XADD t * a b", "XADD t * a b"):
                client.sendall(request(line.encode().split()))
                assert client.recv(1000)
            status, text = ask(port, "/metrics")
            found = samples(text)
        assert status == 200
        assert found["logstore_entries", "0"] == 1
        assert found["logstore_entries", "2"] == 2
        assert found["logstore_stream_entries", "2", "t"] == 2
        assert found["logstore_process_added_entries_total", "2"] == 2
        assert found["logstore_server_clients",] == 1
        assert found["logstore_server_commands_total",] == 5
        assert found["logstore_server_errors_total", "ERR"] == 1
        assert ask(port, "/health") == (200, "ok\n")
        assert ask(port, "/ready") == (200, "ready\n")
        assert ask(port, "/ready?x=1")[0] == 200
        assert ask(port, "/health", "HEAD") == (200, "")
        assert ask(port, "/")[0] == 404
        assert ask(port, "/metrics", "POST")[0] == 501


def test_who_asks_slowly_is_cut_off_and_room_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "ASKER_MAX_S", 0.5)
    endpoint = MetricsEndpoint("127.0.0.1", 0, list, lambda: "", lambda: True)
    try:
        slow = [
            socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(ASKERS_MAX + 2)
        ]
        for each in slow:
            each.sendall(b"GET /health HT")
        for each in slow:
            each.settimeout(TIMEOUT_S)
            assert each.recv(100) == b""  # cut off, however it sends
            each.close()
        assert ask(endpoint.port, "/health") == (200, "ok\n")
        for rubbish in (b"\x00\xff\r\n\r\n", b"G" * 100_000, b"GET /health\r\n" * 3):
            with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
                client.sendall(rubbish)
                with suppress(OSError):  # it may be cut off already
                    client.shutdown(socket.SHUT_WR)
                client.settimeout(TIMEOUT_S)
                with suppress(ConnectionError):
                    while client.recv(4096):
                        pass
        assert ask(endpoint.port, "/ready") == (200, "ready\n")
    finally:
        endpoint.close()


def test_trouble_is_no_health() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, list, lambda: "a sync failed", lambda: True)
    try:
        assert ask(endpoint.port, "/health") == (503, "a sync failed\n")
        assert ask(endpoint.port, "/ready") == (503, "not ready\n")
    finally:
        endpoint.close()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = process("serve", tmp_path / "s", "--port", "0", "--metrics-port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port} for metrics".encode() in done.stderr
    assert b"Traceback" not in done.stderr
