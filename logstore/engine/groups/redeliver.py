"""When what is pending goes to whoever reads next: by a group's setting, or as a read asks for.

A read of new entries takes over what was pending for ``redeliver_after`` of its group, or for the
``claim_idle`` it names, whichever is shorter; what was given back needs no time. A read without
acknowledgement (``noack``) takes over only what it asks for itself: nobody would ack the rest.

Invariants: one rule for those that wait and for the read that they commit in the end. Knows no
entries: what is idle for so long is found by ``walks``.
"""

from __future__ import annotations

from logstore.settings import AMOUNT_MAX, GroupSettings

GIVEN_BACK_ONLY = AMOUNT_MAX  # as a time to be idle: what somebody has is never idle for so long
GIVEN_BACK_MS = 1 << 40  # places in the line of what was given back are below, times of now above


def idle_ms(
    settings: GroupSettings[bytes], asked_ms: int | None, *, noack: bool = False
) -> int | None:
    """For how long an entry must be pending to be taken over by a read; None: none is."""
    after_ms = None if noack else settings.redeliver_after_ms
    if asked_ms is None or after_ms is None:
        return after_ms if asked_ms is None else asked_ms
    return min(asked_ms, after_ms)


def until_ms(now_ms: int, idle: int) -> int:
    """Who was delivered at this time or before is idle for so long; what was given back always."""
    return max(now_ms - idle, GIVEN_BACK_MS - 1 if now_ms >= GIVEN_BACK_MS else 0)


def due_ms(delivered_ms: int, idle: int) -> int:
    """When an entry that was delivered at this time is idle for so long."""
    given_back = delivered_ms < GIVEN_BACK_MS <= idle
    return delivered_ms if given_back else delivered_ms + idle


def clears(settings: GroupSettings[bytes]) -> bool:
    """Whether reads take away what is pending of entries that are gone; the peers' pass it over."""
    return not (settings.redeliver_after_ms is settings.max_deliveries is None)
