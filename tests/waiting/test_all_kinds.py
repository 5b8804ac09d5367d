"""Prevents threads, asyncio tasks, embedded clients and clients of a server, which wait for one
group, from being served out of the order in which they came, twice, or not at all; some of them
killed, and some stopped and continued.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.api.store import Store
from logstore.redis import Redis
from tests.support.processes import Forked
from tests.support.waits import eventually
from tests.waiting.crowd import LONG_S, group_of, key_of, owners, queue, stop
from tests.wire.lines import Line, request
from tests.wire.wired import InProcess

OPTIONS: dict[str, Any] = {"sync": "os", "background": False}
ROUNDS = 4
BLOCK_MS = int(LONG_S * 1000)
Told = Callable[[str, str], None]  # a consumer, and the ID of the entry that it was given


def told_in(folder: Path) -> Told:
    """Notes that outlive the process that writes them: a file for each consumer."""

    def tell(who: str, id: str) -> None:
        with (folder / who).open("a") as file:
            file.write(id + "\n")

    return tell


def by_thread(path: Path, who: str, tell: Told) -> None:
    """Read one entry as a thread."""
    with logstore.open(path, **OPTIONS) as store:
        (given,) = group_of(store).read(who, count=1, timeout=LONG_S)
        tell(who, str(given.id))


def by_task(path: Path, who: str, tell: Told) -> None:
    """Read one entry as a task."""

    async def work() -> None:
        async with aio.open(path, **OPTIONS) as store:
            group = await store.stream("work").group("g", start="0")
            (given,) = await group.read(who, count=1, timeout=LONG_S)
            tell(who, str(given.id))

    asyncio.run(work())


def by_embedded(path: Path, who: str, tell: Told) -> None:
    """Read one entry as redis-py does it in this process."""
    client = Redis(path, store=OPTIONS, decode_responses=True)
    ((_, ((id, _),)),) = client.xreadgroup("g", who, {"work": ">"}, count=1, block=BLOCK_MS)
    tell(who, id)
    client.close()


IN_PROCESS = {"thread": by_thread, "task": by_task, "embedded": by_embedded}


def asked(who: str) -> bytes:
    """The request of a client of a server."""
    words = f"XREADGROUP GROUP g {who} COUNT 1 BLOCK {BLOCK_MS} STREAMS work >"
    return request(words.encode().split())


def given_to(line: Line) -> str:
    """The ID of the one entry that it is given."""
    found: str = line.reply()[0][1][0][0].decode()
    return found


def pending_ids(store: Store[Any]) -> list[str]:
    """The IDs of what is pending, in order."""
    return [str(each.id) for each in group_of(store).pending_entries()]


class Crowd:
    """Waiters of all kinds, in the order in which they came."""

    def __init__(self, store: Store[Any], servers: dict[str, InProcess], folder: Path) -> None:
        self.names: list[str] = []
        self.children: dict[str, Forked] = {}  # those that are a process of their own
        self.lines: dict[str, Line] = {}  # those that are clients of a server
        self._store = store
        self._key = key_of(store)
        self._servers = servers
        self._folder = folder
        folder.mkdir()

    def comes(self, who: str) -> None:
        """One more, once it stands in the queue."""
        kind, path, tell = who.split("-", maxsplit=1)[0], self._store.path, told_in(self._folder)
        if kind in IN_PROCESS:
            self.children[who] = Forked(lambda: IN_PROCESS[kind](path, who, tell))
        else:
            self.lines[who] = Line(self._servers[kind].port)
            self.lines[who].send(asked(who))
        self.names.append(who)
        self.stands(len(self.names))

    def stands(self, number: int) -> None:
        """Wait until so many that live stand in the queue."""
        eventually(lambda: len(queue(self._store, self._key)) == number)

    def of(self, *kinds: str) -> list[str]:
        """Those of some kinds."""
        return [who for who in self.names if who.split("-")[0] in kinds]

    def told(self, clients: list[str]) -> dict[str, str]:
        """What each of them was given, those that are processes and these clients of servers."""
        for child in self.children.values():
            child.join()
        for who in clients:
            told_in(self._folder)(who, given_to(self.lines[who]))
        for line in self.lines.values():
            line.close()
        return {each.name: each.read_text() for each in self._folder.iterdir()}


@pytest.fixture
def servers(store: Store[Any]) -> Iterator[dict[str, InProcess]]:
    """Two servers of the store, each a process."""
    found = {kind: InProcess(store.path, "redis-8.2") for kind in ("client", "doomed")}
    yield found
    for each in found.values():
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGCONT)
            each.stop(kill=True)


def test_all_kinds_stand_in_one_queue(
    store: Store[Any], servers: dict[str, InProcess], tmp_path: Path
) -> None:
    group_of(store)
    crowd = Crowd(store, servers, tmp_path / "told")
    for number in range(ROUNDS):
        for kind in ("client", "thread", "doomed", "task", "embedded"):
            crowd.comes(f"{kind}-{number}")
    stopped, killed = ["thread-1", "task-2", "embedded-0"], ["thread-0", "task-1", "embedded-3"]
    with store._live().committer.locked():  # nobody else holds LOCK, and so may be stopped
        for pid in (servers["client"].pid, *(crowd.children[who].pid for who in stopped)):
            stop(pid)
        for who in killed:
            crowd.children.pop(who).kill()
        servers.pop("doomed").stop(kill=True)
    out = {*stopped, *killed, *crowd.of("client", "doomed")}
    living = [who for who in crowd.names if who not in out]
    for _ in living[2:]:
        store.stream("work").add({"a": "b"})
    store.stream("work").add_many({"a": "b"} for _ in living[:2])
    eventually(lambda: len(owners(store)) == len(living))
    assert owners(store) == living

    for pid in (servers["client"].pid, *(crowd.children[who].pid for who in stopped)):
        os.kill(pid, signal.SIGCONT)
    late = [who for who in crowd.names if who in {*stopped, *crowd.of("client")}]
    crowd.stands(len(late))
    crowd.lines.pop("client-3").close()  # a client that goes leaves the queue to the others
    late.remove("client-3")
    crowd.stands(len(late))
    with Line(servers["client"].port) as adder:
        for _ in late:
            adder("XADD", "work", "*", "a", "b")
    eventually(lambda: len(owners(store)) == len(living) + len(late))
    assert owners(store) == living + late

    told = crowd.told([who for who in late if who in crowd.lines])
    assert told == dict(zip(living + late, [f"{id}\n" for id in pending_ids(store)], strict=True))
    assert queue(store) == []
