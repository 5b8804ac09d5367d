"""Prevents examples that do not run, or do not show what they say."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import logstore
from tests.house.repo import ROOT

EXAMPLES = ROOT / "examples"


def environment(**more: Path) -> dict[str, str]:
    """That of a program that is started in the examples' folder."""
    return {**os.environ, **{name: str(value) for name, value in more.items()}}


def ran(program: str, *given: str, **more: Path) -> str:
    """What a program printed."""
    done = subprocess.run(
        [sys.executable, program, *given], cwd=EXAMPLES, env=environment(**more),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(*command: str, **more: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs beside."""
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=EXAMPLES,
                               env=environment(**more))  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def test_the_event_log(tmp_path: Path) -> None:
    """The second run goes on where the first one stopped."""
    for run in (1, 2):
        said = ran("event_log.py", str(tmp_path / "s")).splitlines()
        assert said[0] == f"in the last hour: {8 * run}"
        assert said[1] == "paid: " + ", ".join(["1, 3, 5"] * run)
        assert len(said) == 2 + 8
        assert said[-1].endswith("paid 5")


def test_the_job_queue(tmp_path: Path) -> None:
    """Two workers do the jobs, also those that fail now and then; charges are there once."""
    queue = tmp_path / "q"
    with running(
        "logstore.tools.cli", "work", "job_queue:jobs", "--processes", "2", JOB_QUEUE=queue
    ):
        said = ran("job_queue.py", JOB_QUEUE=queue).splitlines()
    assert said[0] == "picture 0 at 640 pixels"
    assert len(said) == 21
    with logstore.open(queue, readonly=True) as store:
        assert len(store["charges"]) == 20


def test_the_web_application(tmp_path: Path) -> None:
    """What is posted comes as an event; a browser that comes again gets what it missed, once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running("uvicorn", "web_app:app", "--port", str(port), "--log-level", "warning",
                 WEB_APP=tmp_path / "s") as server:  # fmt: skip
        assert b"EventSource" in asked(port, server, "GET", "/").read()
        ids = [
            json.loads(asked(port, server, "POST", "/messages", text).read())["id"]
            for text in ("one", "two ☃")
        ]
        stream = asked(port, server, "GET", "/events")
        assert [stream.readline() for _ in range(3)] == [
            f"id: {ids[0]}\n".encode(), b'data: {"text": "one"}\n', b"\n",
        ]  # fmt: skip
        stream.close()
        stream = asked(port, server, "GET", "/events", last=ids[0])
        assert stream.readline() == f"id: {ids[1]}\n".encode()
        assert json.loads(stream.readline()[6:]) == {"text": "two ☃"}
        stream.readline()
        asked(port, server, "POST", "/messages", "three").read()  # while it is open
        stream.readline()
        assert stream.readline() == b'data: {"text": "three"}\n'
        stream.close()


def asked(
    port: int,
    server: subprocess.Popen[bytes],
    method: str,
    path: str,
    text: str = "",
    last: str | None = None,
) -> http.client.HTTPResponse:
    """The reply of the server, which may still be starting."""
    headers = {} if last is None else {"Last-Event-ID": last}
    while True:  # the test's own limit ends this
        assert server.poll() is None
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            client.request(method, path, text.encode(), headers)
            reply = client.getresponse()
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        assert reply.status < 300
        return reply
