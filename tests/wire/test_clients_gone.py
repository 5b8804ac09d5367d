"""Prevents a read that blocks from waiting for a client that went before it began.

Waiters here sleep until they are woken, and nobody wakes for such a client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.aio.wait import Tasks, Watcher
from logstore.api.opening import opened_of
from logstore.wire.catalogue import service_of
from logstore.wire.embedded import EmbeddedSession
from logstore.wire.service import Service
from tests.support.inside import patient_waiters

SOON_S = 30.0  # what needs no pause takes milliseconds, and PATIENT_S is far above this
PATIENT_S = 900.0
READS = {
    "streams": [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"],
    "group": [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"],
    "groups": [
        b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b"t", b">", b">",
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """Nobody looks by itself meanwhile."""
    with patient_waiters(PATIENT_S):
        yield


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Of a store with two streams and their groups."""
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        for name in "st":
            store.stream(name).group("g", start="$")
        yield service_of(store)


def gone(service: Service, words: list[bytes]) -> EmbeddedSession:
    """A client that asked, and went before its read began to wait."""
    direct = EmbeddedSession(service)
    direct.words([words])
    direct.session.leave()
    return direct


@pytest.mark.parametrize("kind", READS)
def test_a_task_lets_it_go_at_once(service: Service, kind: str) -> None:
    direct = gone(service, READS[kind])

    async def run() -> None:
        watcher = Watcher(opened_of(service.store).engine)
        await asyncio.wait_for(direct.wait_in_task(Tasks(watcher, asyncio.to_thread)), SOON_S)
        watcher.close()
        await asyncio.to_thread(watcher.join)

    asyncio.run(run())
    assert not direct.waits


@pytest.mark.parametrize("kind", READS)
def test_a_thread_lets_it_go_at_once(service: Service, kind: str) -> None:
    direct = gone(service, READS[kind])
    thread = threading.Thread(target=direct.wait, args=(None,), daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert not direct.waits


@pytest.mark.parametrize("kind", READS)
def test_a_blocking_read_of_a_gone_client_reads_existing_entries(
    service: Service, kind: str
) -> None:
    """It has one try, as with the peers: what it got of a group is pending."""
    words = [b"0" if word == b"$" else word for word in READS[kind]]
    direct = gone(service, words)
    service.store.stream("s").add({"a": "b"}, id="1-0")
    direct.wait(None)
    assert b"1-0" in direct.encoded()
