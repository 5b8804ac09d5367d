"""Giving back what the index takes: its next generation, built beside those who commit.

Invariants: the maintenance lock is held; all that is published is durable before the index before
goes, as when any index is rebuilt; LOCK is held for the switch, and for slices of what was
committed last. Between two slices others commit, for a shorter time, so that it comes to an end.
"""

from __future__ import annotations

import time

from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import CorruptionError

BREAK_S = 0.003  # between two slices
TRIES = 3  # somebody who lost a page of the index builds it anew, at any time


def renew(engine: Engine, committer: Committer) -> bool:
    """Put the next generation in the place of this one, without free pages, and without bytes of
    what was deleted. False where it cannot be copied, or others build one again and again.
    """
    durability.flush(engine, committer)
    return any(_renewed(engine, committer) for _ in range(TRIES))


def _renewed(engine: Engine, committer: Committer) -> bool:
    """Whether it was built and is used now."""
    if engine.renewing is None:
        return False
    following = engine.renewing(engine)
    try:
        following.build()
        while True:
            with committer.locked() as words:
                if following.follow_locked(words.applied):
                    return following.switch_locked(words.applied)
            time.sleep(BREAK_S)
    except CorruptionError as exc:
        log.warning("the index cannot be copied: %s", exc)
        return False
    finally:
        following.leave()
