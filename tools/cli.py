"""Starts the command ``logstore``, and ends it: neither looks for garbage in what was just loaded.

That would be a tenth of a short command's work. While one runs, garbage is looked for as ever.
"""

from __future__ import annotations

import atexit
import gc

from logstore.loading import load


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    # What is still there when the interpreter ends goes with the process. A command closes its
    # files, and its store, by itself before that.
    atexit.register(gc.freeze)
    load("logstore.tools.commands").main()


if __name__ == "__main__":
    main()
