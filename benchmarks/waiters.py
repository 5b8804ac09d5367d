"""What benchmarks.waiting runs in processes of its own: ``python -m benchmarks.waiters NAME ..``.

Each prints one line of JSON; ``receive`` and its peer print a line before, when they wait.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import logstore
from benchmarks import peer
from logstore import aio
from logstore.api.store import Store

QUEUED = "group, one of ten"
KINDS = (
    "nothing", "stream", "streams", "group", "claim", QUEUED, "worker", "asyncio", "asyncio claim",
    "read-only",
)  # fmt: skip
PLACES = 10
SETTLED_S = 1.5
NEVER_S = 1_000.0
ROUND_S = 10.0


def idle(path: str, kind: str, seconds: str) -> float:
    """Seconds of processor time that this process takes in so long: it waits, once or often."""
    if kind.startswith("asyncio"):
        return asyncio.run(_idle_task(path, kind, float(seconds)))
    with logstore.open(path, create=False, readonly=kind == "read-only") as store:
        waiters = PLACES if kind == QUEUED else 1
        for number in range(waiters):
            threading.Thread(target=_wait, args=(store, kind, f"c{number}"), daemon=True).start()
        time.sleep(SETTLED_S)
        began = time.process_time()
        time.sleep(float(seconds))
        return time.process_time() - began


def _wait(store: Store[Any], kind: str, who: str) -> None:
    stream = store.stream("s")
    group = stream.group(kind)
    reads: dict[str, Callable[[], object]] = {
        "nothing": threading.Event().wait,
        "stream": lambda: stream.read(timeout=NEVER_S),
        "streams": lambda: store.read({"s": "$", "t": "$"}, timeout=NEVER_S),
        "read-only": lambda: stream.read(timeout=NEVER_S),
        "group": lambda: group.read(who, timeout=NEVER_S),
        QUEUED: lambda: group.read(who, timeout=NEVER_S),
        "claim": lambda: group.read(who, timeout=NEVER_S, min_idle=NEVER_S),
        "worker": lambda: group.consume(who, print, min_idle=NEVER_S),
    }
    with suppress(logstore.ClosedError):
        reads[kind]()


async def _idle_task(path: str, kind: str, seconds: float) -> float:
    async with aio.open(path, create=False) as store:
        min_idle = NEVER_S if kind == "asyncio claim" else None
        group = await store.stream("s").group(kind)
        task = asyncio.create_task(group.read("c", timeout=NEVER_S, min_idle=min_idle))
        await asyncio.sleep(SETTLED_S)
        began = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - began
        task.cancel()
        await asyncio.wait([task])
    return used


def receive(path: str, how: str, count: str) -> list[float]:
    """Seconds from add to receipt of so many entries, with one waiter."""
    late: list[float] = []
    with logstore.open(path, create=False) as store:
        stream = store.stream(how)
        group = stream.group("g")
        last = stream.last_id
        print("ready", flush=True)
        while len(late) < int(count):
            found: list[Any]
            if how == "stream":
                found = stream.read(last, timeout=ROUND_S)
            else:
                found = group.read("c", timeout=ROUND_S, noack=True)
            late += _since([each.fields[b"t"] for each in found])
            last = found[-1].id
    return late


def receive_peer(port: str, how: str, count: str) -> list[float]:
    """The same from Redis."""
    late: list[float] = []
    client = peer.connect(int(port))
    last = client.xinfo_stream(how)["last-generated-id"]
    print("ready", flush=True)
    while len(late) < int(count):
        block = int(ROUND_S * 1e3)
        if how == "stream":
            reply = client.xread({how: last}, block=block)
        else:
            reply = client.xreadgroup("g", "c", {how: ">"}, block=block, noack=True)
        late += _since([fields[b"t"] for _, fields in reply[0][1]])
        last, _ = reply[0][1][-1]
    return late


def _since(sent: list[bytes]) -> list[float]:
    now = time.monotonic_ns()
    return [(now - int(each)) / 1e9 for each in sent]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "idle": idle, "receive": receive, "receive_peer": receive_peer,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(FUNCTIONS[sys.argv[1]](*sys.argv[2:])))
