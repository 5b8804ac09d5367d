"""The log of the Spark source: the logger ``logstore.spark``, also in processes of Spark's own.

Spark plans in Python processes of its own, where nobody sets up logging, so messages below a
warning would be lost. So the source takes along the level that the logger has where it is
registered, and messages of a plan go to standard error, which is the driver's.

Invariant: handlers that a program has set up take the messages.
"""

from __future__ import annotations

from logstore.logger import Logger

LOGGER = "logstore.spark"
UNKNOWN = 0  # the level of a source that was not registered
log = Logger(LOGGER)


def level() -> int:
    """The level of the logger in this process, for `listen` in another one."""
    import logging

    return logging.getLogger(LOGGER).getEffectiveLevel()


def listen(from_level: int) -> None:
    """Log from this level on in this process; Python logs warnings by itself."""
    import logging

    if UNKNOWN < from_level < logging.WARNING:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(from_level)
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
