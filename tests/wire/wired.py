"""A served store as a side of the machine: what a client is told over the wire.

The server runs in a thread of the test, which starts at once, or as ``logstore serve``, a process
of its own that is also killed. The operations are the commands that the peers get, word for word.
"""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import redis

import logstore
from tests.groups.theirs import Theirs
from tests.peers.servers import Peer
from tests.support.inside import delete_index
from tests.tools.commands import COMMAND, environment
from tests.wire.served import serving

How = Literal["thread", "process"]


class InThread:
    """A server in this process."""

    def __init__(self, path: Path, profile: str) -> None:
        self._stack = ExitStack()
        options: dict[str, Any] = {"sync": "os", "background": False}
        served = self._stack.enter_context(serving(path, store=options, profile=profile))
        self.port = served.port

    def stop(self, *, kill: bool = False) -> None:
        """End it; here it cannot be killed."""
        self._stack.close()


class InProcess:
    """``logstore serve``."""

    def __init__(self, path: Path, profile: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "serve", str(path), "--port", "0", "--sync", "os",
             "--compat", profile, "--json"],
            stdout=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.port: int = json.loads(self._process.stdout.readline())["port"]

    def stop(self, *, kill: bool = False) -> None:
        """End it, or kill it."""
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        ended = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert ended == (-signal.SIGKILL if kill else 0)


class Wired(Theirs):
    """A store behind a server, which ends and begins again."""

    def __init__(
        self, path: Path, node_bytes: int, node_entries: int, *, profile: str, how: How
    ) -> None:
        self.path = path
        self._profile = profile
        self._kind = InThread if how == "thread" else InProcess
        logstore.open(
            path, sync="os", background=False, node_max_bytes=node_bytes,
            node_max_entries=node_entries,
        ).close()  # fmt: skip
        self._begin()

    def _begin(self) -> None:
        self._server = self._kind(self.path, self._profile)
        client = redis.Redis(port=self._server.port, protocol=2)
        client.response_callbacks.clear()  # replies as they are
        self.peer = Peer(self._profile, "ours", self._server.port, client)

    def _end(self, *, kill: bool = False) -> None:
        self.peer.client.close()
        self._server.stop(kill=kill)

    def close(self) -> None:
        """End the server."""
        self._end()

    def restart(self, how: str) -> None:
        """End and begin; with a checkpoint before, with the index deleted between."""
        if "checkpoint" in how:
            assert self._ask("SAVE") == b"OK"
        self._end()
        if "rebuild" in how:
            delete_index(self.path)
        self._begin()

    def die(self, step: int, living: bool, operation: str, words: tuple[object, ...]) -> bool:
        """The server is killed between two commands: what it answered must be there."""
        if self._kind is InProcess:
            self._end(kill=True)
            self._begin()
        return False
