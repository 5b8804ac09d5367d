"""Loggers that load Python's logging when there is something to say.

Most processes that open a store have nothing to log, and logging takes as long to load as the
database. Where nobody has loaded it, nobody has set a level or a handler: then what is below a
warning would go nowhere, and is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

Exc: TypeAlias = BaseException | bool | None


_at_first: list[Callable[[], None]] = []


def at_first_use(prepare: Callable[[], None]) -> None:
    """Have handlers set up when a logger of these has something to tell, and not before."""
    _at_first.append(prepare)


def prepare() -> None:
    """Set up the handlers that wait for a first use: for who tells by Python's logging itself."""
    while _at_first:
        _at_first.pop()()


class Logger:
    """The logger of a name, as ``logging.getLogger`` gives it; loaded at its first use."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def info(self, message: str, *args: object) -> None:
        """Tell what went as it should."""
        if "logging" in sys.modules:
            self._log(20, message, args, None)

    def warning(self, message: str, *args: object, exc_info: Exc = None) -> None:
        """Tell what somebody should look at."""
        self._log(30, message, args, exc_info)

    def error(self, message: str, *args: object, exc_info: Exc = None) -> None:
        """Tell what failed."""
        self._log(40, message, args, exc_info)

    def exception(self, message: str, *args: object) -> None:
        """Tell what failed, with the exception that is handled just now."""
        self._log(40, message, args, True)

    def _log(self, level: int, message: str, args: tuple[object, ...], exc_info: Exc) -> None:
        import logging

        prepare()
        logging.getLogger(self.name).log(level, message, *args, exc_info=exc_info, stacklevel=3)
