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
from logstore.ids import StreamID
from logstore.recovery import backup
from tests.house.repo import EXAMPLES
from tests.peers.servers import Peer
from tests.recovery.shipped import bucket_server, empty_bucket


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


def test_the_edge_sensor(tmp_path: Path) -> None:
    """A network that is away loses no reading; what is shipped is restored as a store."""
    port = empty_bucket(tmp_path / "s3")
    uri = (
        f"s3://someone:secret@bucket/sensors/42?endpoint_override=127.0.0.1%3A{port}"
        "&scheme=http&region=us-east-1"
    )
    shorter = (
        "import datetime, sys, edge_sensor as it;"
        "it.EVERY = datetime.timedelta(milliseconds=2);"
        "it.SHIP_EVERY = datetime.timedelta(milliseconds=300);"
        "it.main(*sys.argv[1:])"
    )
    with started(sys.executable, "-c", shorter, str(tmp_path / "s"), uri) as sensor:
        assert sensor.stderr is not None
        assert sensor.stdout is not None
        assert b"not shipped" in sensor.stderr.readline()  # nobody is there
        with bucket_server(tmp_path / "s3", port):
            assert sensor.stdout.readline().startswith(b"shipped ")
            sensor.terminate()
            said, _ = sensor.communicate(timeout=60)
            assert sensor.returncode == 0
            assert b"shipped " in said
            backup.fetch(uri, tmp_path / "again")
    with (
        logstore.open(tmp_path / "s", readonly=True) as there,
        logstore.open(tmp_path / "again", readonly=True) as here,
    ):
        assert list(here["readings"].range()) == list(there["readings"].range())
        assert len(here["readings"]) > 10


def test_the_archive_of_a_live_redis(tmp_path: Path, redis_peer: Peer) -> None:
    """What the server trimmed is in the archive, also after a kill."""
    address = f"redis://127.0.0.1:{redis_peer.port}/0"
    client = redis_peer.client
    for n in range(100):
        client.execute_command("XADD", "race:a", f"{n + 1}-1", "n", n)
    client.execute_command("XADD", "other", "*", "n", 1)
    client.execute_command("XGROUP", "CREATE", "race:a", "g", 0)
    client.execute_command("XREADGROUP", "GROUP", "g", "c", "COUNT", 60, "STREAMS", "race:a", ">")
    client.execute_command("XACK", "race:a", "g", *(f"{n + 1}-1" for n in range(60)))
    command = (sys.executable, "redis_archive.py", address, str(tmp_path / "s"), "race:*")
    with started(*command) as killed:
        while client.execute_command("XLEN", "race:a") == 100:
            assert killed.poll() is None
            time.sleep(0.02)
        killed.kill()
    client.execute_command("XADD", "race:a", "200-1", "n", "last")
    with started(*command) as archive:
        while True:
            with logstore.open(tmp_path / "s", readonly=True) as store:
                if "race:a" in store and store["race:a"].last_id == StreamID(200, 1):
                    break
            assert archive.poll() is None
            time.sleep(0.02)
        archive.terminate()
        said, _ = archive.communicate(timeout=60)
        assert archive.returncode == 0
    assert said.decode().splitlines() == ["race:a: 101 entries, 1-1 to 200-1"]
    assert client.execute_command("XLEN", "race:a") < 100


def test_the_dashboard(tmp_path: Path) -> None:
    """It shows what others add while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        store.stream("orders").add_many([{"n": n} for n in range(5)])
        store.stream("orders").group("mail", "0").read("c", count=2)
        store.stream(b"r\xffd").group("mail", "$")
        with running("uvicorn", "dashboard:app", "--port", str(port), "--log-level", "warning",
                     DASHBOARD=tmp_path / "s") as server:  # fmt: skip
            assert b"<title>Dashboard" in asked(port, server, "GET", "/").read()
            for more in (0, 3):
                store.stream("orders").add_many([{"n": n} for n in range(more)])
                found = json.loads(asked(port, server, "GET", "/data").read())
                orders, odd = found["streams"]
                assert (odd["name"], odd["entries"]) == ("r\ufffdd", 0)
                assert (orders["name"], orders["entries"]) == ("orders", 5 + more)
                assert (sum(orders["minutes"]), len(orders["minutes"])) == (5 + more, 60)
                assert found["groups"][0] == {
                    "stream": "orders", "name": "mail", "lag": 3 + more, "pending": 2
                }  # fmt: skip


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the examples' folder, its output caught."""
    process = subprocess.Popen(command, cwd=EXAMPLES, env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


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
