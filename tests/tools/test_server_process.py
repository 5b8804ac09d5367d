"""Prevents a server that its service manager takes for dead or for ready when it is not, and a log
of which one cannot tell when it was written.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from logstore.tools.service.server_process import SEND_TIMEOUT_S, ServiceManager
from tests.tools.commands import COMMAND, TIMEOUT_S, environment

SIGNS = 3  # of life
WATCHED_US = 200_000
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO logstore\.server: (.*)")


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    """Where a service manager would listen."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notified"))
    listening.settimeout(TIMEOUT_S)
    return listening


def _started(path: Path, stderr: int, **variables: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "serve", str(path), "--port", "0", "--unixsocket", str(path) + ".socket"]
    return subprocess.Popen(
        command, env=environment() | variables, stdout=subprocess.DEVNULL, stderr=stderr
    )


def test_the_manager_is_told_the_start_the_signs_of_life_and_the_end(
    tmp_path: Path, manager: socket.socket
) -> None:
    with manager, open(tmp_path / "log", "w+b") as log:
        process = _started(
            tmp_path / "store",
            log.fileno(),
            NOTIFY_SOCKET=manager.getsockname(),
            WATCHDOG_USEC=str(WATCHED_US),
        )
        try:
            ready = manager.recv(4096).decode().splitlines()
            with socket.socket(socket.AF_UNIX) as client:  # not before it listens
                client.connect(f"{tmp_path}/store.socket")
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
            for _ in range(SIGNS):
                assert manager.recv(4096) == b"WATCHDOG=1"
            process.send_signal(signal.SIGTERM)
            while (message := manager.recv(4096)) == b"WATCHDOG=1":
                pass
            assert message.startswith(b"STOPPING=1\nSTATUS=")
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
        log.seek(0)
        said = log.read().decode()
    assert ready[0] == "READY=1"
    assert re.fullmatch(rf"STATUS={tmp_path}/store is served on 127\.0\.0\.1:\d+ and \S+", ready[1])
    assert ready[2] == f"MAINPID={process.pid}"
    began, ending, ended = (LINE.sub(r"\1", line) for line in said.splitlines())
    assert began.startswith(f"logstore {logstore.__version__} serves {tmp_path}/store on ")
    assert began.endswith(f"pid {process.pid}")
    assert ending.startswith("SIGTERM: ending, ")
    assert ended == "ended: 1 connections, 1 commands"


@pytest.mark.parametrize("other", [False, True])
def test_the_journal_gets_priorities_and_a_file_gets_moments(other: bool, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    found = os.fstat(writing)
    journal = f"{found.st_dev}:{found.st_ino + other}"
    process = _started(tmp_path / "store", writing, JOURNAL_STREAM=journal)
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            began = lines.readline()
            process.terminate()
            rest = lines.readlines()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
    for line in [began, *rest]:
        assert line.startswith("<6>logstore.server: ") is not other, line
        assert bool(LINE.fullmatch(line.rstrip())) is other, line


def test_an_abstract_socket_is_found_and_its_variables_are_for_this_process_only() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel gives it a name
        name = "@" + listening.getsockname()[1:].decode()
        variables = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}
        told = ServiceManager(variables)
        assert variables == {}
        assert told.watchdog_s == 0.0  # another process is watched
        told.ready("it is")
        assert listening.recv(100) == f"READY=1\nSTATUS=it is\nMAINPID={os.getpid()}".encode()


@pytest.mark.parametrize("microseconds", ["", "no", "-5", "0"])
def test_nothing_is_sent_without_a_manager(microseconds: str) -> None:
    told = ServiceManager({"WATCHDOG_USEC": microseconds})
    told.ready("nobody hears it")
    asyncio.run(asyncio.wait_for(told.keep_alive(), TIMEOUT_S))  # it returns


def test_a_manager_that_cannot_be_reached_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    told.ready("x")
    told.stopping("y")
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once is enough
    assert "gone" in caplog.text


def test_a_full_queue_of_the_manager_holds_up_no_client(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000"}

    async def looked_after() -> None:
        alive = asyncio.create_task(told.keep_alive())
        for _ in range(SIGNS):
            await asyncio.sleep(0.001)  # each would take SEND_TIMEOUT_S if it waited for room
        alive.cancel()

    with manager, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        other.connect(manager.getsockname())
        with suppress(BlockingIOError):
            while True:
                other.send(b"x")
        told = ServiceManager(variables)
        before_s = time.monotonic()
        asyncio.run(looked_after())
        assert time.monotonic() - before_s < SEND_TIMEOUT_S
        assert len(caplog.records) == 1
        while manager.recv(100) != b"WATCHDOG=1":  # there is room again
            told.alive()
