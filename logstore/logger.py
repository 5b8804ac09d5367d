"""Loggers that load Python's logging when there is something to say.

Most processes that open a store have nothing to log, and logging takes as long to load as the
database. Where nobody has loaded it, nobody has set a level or a handler: then what is below a
warning would go nowhere, and is not told.
"""

from __future__ import annotations

import sys
from typing import TypeAlias

Exc: TypeAlias = BaseException | bool | None


class Logger:
    """The logger of a name, as ``logging.getLogger`` gives it; loaded at its first use."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def info(self, message: str, *args: object) -> None:
        """Tell what went as it should."""
        if "logging" in sys.modules:
            import logging

            logging.getLogger(self.name).info(message, *args, stacklevel=2)

    def warning(self, message: str, *args: object, exc_info: Exc = None) -> None:
        """Tell what somebody should look at."""
        import logging

        logging.getLogger(self.name).warning(message, *args, exc_info=exc_info, stacklevel=2)

    def error(self, message: str, *args: object, exc_info: Exc = None) -> None:
        """Tell what failed."""
        import logging

        logging.getLogger(self.name).error(message, *args, exc_info=exc_info, stacklevel=2)

    def exception(self, message: str, *args: object) -> None:
        """Tell what failed, with the exception that is handled just now."""
        import logging

        logging.getLogger(self.name).error(message, *args, exc_info=True, stacklevel=2)
