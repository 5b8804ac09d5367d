"""Workers whose process has ended: others take over what they held.

A consumer's name says its process, so that others on the machine see whether it still runs. The
workers of ``logstore.jobs`` and of huey take over by ``rescue``; taskiq's, awaited, by the same
rules.

Invariants: nothing is taken from a worker that lives, or may live: one of another host or
container. A worker is forgotten only when it was idle for ``FORGET_AFTER``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from logstore.api.group import DeletedDelivery, Delivery, Group
from logstore.api.worker import process_ended
from logstore.logger import Logger

log = Logger("logstore.jobs")

LOOK_S = 0.5  # how often a worker looks for others that are gone
# A job that was claimed a moment ago is with whoever claimed it, though its consumer was gone.
CLAIM_IDLE = timedelta(seconds=1)
CLAIM_JOBS = 100  # at once
FORGET_AFTER = timedelta(minutes=10)


def text(name: str | bytes) -> str:
    """A consumer's name as text, whatever the store's encoding."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


def rescue(group: Group[Any], taker: str) -> list[Delivery[Any] | DeletedDelivery[Any]]:
    """Take over the jobs of workers that are gone, and forget those that have none.

    A worker that was awake a moment ago is not forgotten yet: a process that adds a job may be
    handing it over just then, and no worker gets what a removed consumer holds.

    Args:
        group: the workers.
        taker: the consumer that takes.

    Returns:
        What it took.
    """
    taken: list[Delivery[Any] | DeletedDelivery[Any]] = []
    for consumer in group.consumers():
        name = text(consumer.name)
        if name == taker or not process_ended(name):
            continue
        if not consumer.pending:
            if consumer.idle >= FORGET_AFTER:
                group.remove_consumer(consumer.name)
            continue
        held = group.pending_entries(count=CLAIM_JOBS, consumer=consumer.name)
        ids = [each.id for each in held]
        if ids:
            found = group.claim(taker, *ids, min_idle=CLAIM_IDLE)
            log.info("%d jobs are taken over: their worker %s is gone", len(found), name)
            taken += found
    return taken
