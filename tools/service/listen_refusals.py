"""Why an address cannot be listened on, and what to do instead: one sentence for each server.

Invariants: no reason is without its advice; nothing is asked of the system again.
"""

from __future__ import annotations

import errno
import os

from logstore.errors import FileSystemError

_NO_ADDRESS = "this machine has no such address: give 127.0.0.1 for itself, 0.0.0.0 for all it has"
_REASONS = {
    errno.EADDRINUSE: "a program does so already: stop it, or give another port, 0 for any",
    errno.EACCES: "a port below 1,024 needs more rights: give a higher one, or 0 for any",
    errno.EADDRNOTAVAIL: _NO_ADDRESS,
}


def refusal(host: str, port: int, error: OSError, purpose: str = "") -> FileSystemError:
    """The error of a server that cannot listen.

    Args:
        host: where it was to listen.
        port: likewise.
        error: what the system said.
        purpose: what for, where a command listens twice, as " for metrics".
    """
    number = error.errno or 0
    reason = _REASONS.get(number)
    if reason is None:
        # The resolver's numbers are below zero. What asyncio and socket say has the address in it.
        reason = (
            _NO_ADDRESS if number < 0
            else f"{os.strerror(number) if number else error}: give another address"
        )  # fmt: skip
    return FileSystemError(f"cannot listen on {host}:{port}{purpose}: {reason}")
