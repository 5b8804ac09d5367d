"""The seed of a test that draws at random, and is to draw the same when it is asked to.

A test prints its seed. LOGSTORE_SEED gives it back; `make test` sets LOGSTORE_RUN_SEED to the seed
of its draw, so that `make test SEED=...` repeats the tests with what they drew.
"""

from __future__ import annotations

import os
import random

GIVEN = "LOGSTORE_SEED"
OF_RUN = "LOGSTORE_RUN_SEED"


def seed() -> int:
    """The seed that is given, that of the run, or another one each time; never 0."""
    given = os.environ.get(GIVEN) or os.environ.get(OF_RUN) or 0
    return int(given) or random.SystemRandom().randrange(1, 1 << 32)
