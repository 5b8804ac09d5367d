"""The log of the Spark source: the logger ``logstore.spark``, also in processes of Spark's.

Spark makes plans in Python processes of its own, in which nobody sets up logging: what is no
warning would go nowhere there. So the level that the logger has where the source is registered goes
along with the source, and lines go to standard error, which is the driver's.

Invariants: where a program has set up handlers these take the lines. Knows nothing of what is told.
"""

from __future__ import annotations

from logstore.logger import Logger

LOGGER = "logstore.spark"
UNKNOWN = 0  # the level of a source that nobody registered
log = Logger(LOGGER)


def level() -> int:
    """The level of this process, which `listen` takes up elsewhere."""
    import logging

    return logging.getLogger(LOGGER).getEffectiveLevel()


def listen(to: int) -> None:
    """Tell from this level on, here too; one of warnings and above is Python's own already."""
    import logging

    if UNKNOWN < to < logging.WARNING:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(to)
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
