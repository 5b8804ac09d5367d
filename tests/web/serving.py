"""The pages of a store, served by a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.tools.commands import COMMAND, environment

ENTRIES = 120


@contextmanager
def served(path: Path, *arguments: str) -> Iterator[str]:
    """The address of a server of its own; it ends at SIGTERM with code 0."""
    process = subprocess.Popen(
        [*COMMAND, "web", str(path), "--port", "0", "--json", *arguments],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait(30) in {0, -signal.SIGTERM}


def ask(
    address: str, target: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of one request."""
    place = urlsplit(address)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    connection.request(method, target, headers={"Host": place.netloc, **headers})
    answer = connection.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}
    text = answer.read().decode()
    connection.close()
    return answer.status, told, text
