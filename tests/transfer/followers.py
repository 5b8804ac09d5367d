"""A server that is followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logstore.api.store import Store
from logstore.errors import Error
from logstore.transfer import Follow, Report, Server, Wanted, follow
from tests.transfer.durable import DurableServer

WAIT_S = 120.0
FOLLOWER = "follower"  # the thread that follows
QUICK = {"look_s": 0.1, "settle_s": 0.05}


@contextmanager
def followed(store: Store[Any], server: DurableServer, *patterns: bytes, **how: Any) -> Iterator[
    Report
]:  # fmt: skip
    """Follow a server while the block runs."""
    report, stop, failed = Report(), threading.Event(), list[Error]()

    def run() -> None:
        try:
            with Server(server.url) as connection:
                options = Follow(**{**QUICK, **how})
                follow(store, connection, Wanted(patterns), options, stop=stop, report=report)
        except Error as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=FOLLOWER)
    thread.start()
    try:
        yield report
    finally:
        stop.set()
        thread.join(WAIT_S)
    if failed:
        raise failed[0]


def ids(store: Store[Any], name: str) -> list[str]:
    """The IDs of a stream here."""
    return [str(entry.id) for entry in store.stream(name)]


def add(client: Any, name: str, *numbers: int) -> None:
    """Add entries with IDs of these numbers."""
    for number in numbers:
        client.execute_command("XADD", name, f"{number}-1", "n", number, "n", "again")
