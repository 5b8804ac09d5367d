"""How many files the process may have open: each client is one.

Invariant: only ever raises the limit, and never beyond what the system allows without asking.
"""

from __future__ import annotations

import resource
from contextlib import suppress

KEPT = 512  # for what the stores have open


def allow(clients_max: int) -> int:
    """Raise the limit for so many clients; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients_max + KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return clients_max if soft == resource.RLIM_INFINITY else max(1, min(clients_max, soft - KEPT))
