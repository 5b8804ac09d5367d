"""An archive of a live Redis: the server keeps minutes of its streams in memory, this keeps years.

    pip install '.[redis]'        # in a clone
    python redis_archive.py redis://localhost:6379/0 archive.store 'race:*'

What all groups of the server have read and acked, and what is on this disk, is trimmed there. Both
may be stopped and killed: the follower goes on where it was, and no entry is lost or doubled.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading

import logstore
from logstore.transfer import Follow, Report, Server, Wanted, follow


def tell(archive: logstore.Store[bytes]) -> None:
    """What the archive has."""
    for name in archive.streams():
        stream = archive.stream(name)
        first = next(stream.range(count=1), None)
        if first is not None:
            shown = name.decode(errors="backslashreplace")
            print(f"{shown}: {len(stream)} entries, {first.id} to {stream.last_id}")


def main(address: str, path: str, *patterns: str) -> None:
    """Follow until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    # A handler that set the event could wait for ever for this thread, which waits for the event.
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.put(None))
    threading.Thread(target=lambda: (asked.get(), stop.set()), daemon=True).start()
    with logstore.open(path) as archive:
        report = Report()
        follow(
            archive,
            Server(address),
            Wanted([pattern.encode() for pattern in patterns]),
            Follow(trim="acked"),
            stop=stop,
            report=report,
        )
        tell(archive)


if __name__ == "__main__":
    main(*sys.argv[1:])
