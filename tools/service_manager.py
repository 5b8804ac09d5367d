"""What commands that run on tell those who look after them: systemd by its notification protocol,
and logs with a level and a time.

Invariants: without ``NOTIFY_SOCKET`` nothing is sent, and nothing is waited for with it; a service
manager that cannot be reached is told in the log, and ends nothing. The variables of the protocol
are taken out of the environment, so that children do not speak for this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import MutableMapping

SEND_TIMEOUT_S = 5.0  # a full queue of the manager's socket must not stop the command
_PRIORITIES = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)  # as sd-daemon(3) has them
_DEBUG = 7
log = logging.getLogger("logstore.service")


class ServiceManager:
    """The service manager that started this process, if one asked to be told (``Type=notify``)."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        watched_us = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", "") or str(os.getpid())
        watched = bool(self._address) and watched_us.isdecimal() and watched_pid == str(os.getpid())
        self.watchdog_s = int(watched_us) / 1e6 if watched else 0.0
        """After so many seconds without a sign of life the manager kills this process; 0: never."""
        self._warned = False

    def ready(self, status: str) -> None:
        """The command does its work from now on; ``status`` is shown by ``systemctl status``."""
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}", SEND_TIMEOUT_S)

    def stopping(self, status: str) -> None:
        """The command ends; the manager waits as long as its unit says."""
        self._tell(f"STOPPING=1\nSTATUS={status}", SEND_TIMEOUT_S)

    def alive(self) -> None:
        """One sign of life. It waits for nothing: the next one comes soon."""
        self._tell("WATCHDOG=1", 0.0)

    async def keep_alive(self) -> None:
        """Show the manager that the event loop turns, twice as often as it wants to see it. Returns
        at once if it does not look; else it runs until it is cancelled."""
        while self.watchdog_s:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def _tell(self, message: str, timeout_s: float) -> None:
        if not self._address:
            return
        # A name that begins with @ has no file: Linux's abstract namespace begins with a zero byte.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notified:
                notified.settimeout(timeout_s)
                notified.connect(address)
                notified.send(message.encode("utf-8", "surrogateescape"))
        except OSError as exc:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            log.log(level, "the service manager at %s cannot be told: %s", self._address, exc)


class _ForTheJournal(logging.Formatter):
    """Lines with a priority in front, which journald takes off; it has the time by itself."""

    def format(self, record: logging.LogRecord) -> str:
        """Each line of a traceback gets the priority, too."""
        text = super().format(record)
        at = (number for level, number in _PRIORITIES if record.levelno >= level)
        prefix = f"<{next(at, _DEBUG)}>"
        return "\n".join(prefix + line for line in text.splitlines())


def log_as_a_service() -> None:
    """Have the handlers of ``logstore`` write lines for a log that is kept: with the moment (UTC,
    to the millisecond), the level and the logger's name, or as journald wants them."""
    shown: logging.Formatter
    if _is_the_journal():
        shown = _ForTheJournal("%(name)s: %(message)s")
    else:
        shown = logging.Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        shown.converter = time.gmtime
    for handler in logging.getLogger("logstore").handlers:
        handler.setFormatter(shown)


def _is_the_journal() -> bool:
    """Whether stderr is the journal's socket itself, and was not sent elsewhere since."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    if sys.stderr is None or not (device.isdecimal() and inode.isdecimal()):
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):  # no file
        return False
    return (found.st_dev, found.st_ino) == (int(device), int(inode))
