"""Starts the command ``logstore`` and ends it, both without a garbage collection.

The collections would be a tenth of the time of a short command. While it runs there are collections
as usual.
"""

from __future__ import annotations

import atexit
import gc

from logstore.loading import load


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    # Objects that are left at the end need no collection: a command closes its files and its store
    # itself.
    atexit.register(gc.freeze)
    load("logstore.tools.commands").main()


if __name__ == "__main__":
    main()
