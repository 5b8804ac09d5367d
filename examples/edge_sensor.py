"""A sensor at the edge: readings are kept on its disk, and shipped to S3 when the network is there.

    pip install '.[arrow]'        # in a clone
    python edge_sensor.py sensor.store s3://bucket/sensors/42

No reading is lost while the network is away, nor when the power goes (but for the last second), and
the disk does not fill. Anywhere else: logstore restore s3://bucket/sensors/42 here.store
"""

from __future__ import annotations

import math
import queue
import signal
import sys
import threading
from datetime import timedelta

import logstore

EVERY = timedelta(seconds=1)
SHIP_EVERY = timedelta(minutes=1)


def measure(count: int) -> dict[str, str]:
    """What the sensor says; here a curve."""
    return {"celsius": f"{20 + 5 * math.sin(count / 100):.2f}", "percent": str(40 + count % 7)}


def ship(store: logstore.Store[str], uri: str, stop: threading.Event) -> None:
    """Ship now and then, and once more at the end; only what is new is sent."""
    last_one = False
    while not last_one:
        last_one = stop.wait(SHIP_EVERY.total_seconds())
        try:
            done = store.ship(uri)
            print(f"shipped {done.sent_bytes} bytes of {done.size_bytes}", flush=True)
        except logstore.FileSystemError as error:  # no network: the next one sends it
            print(f"not shipped: {error}", file=sys.stderr, flush=True)


def main(path: str, uri: str) -> None:
    """Measure until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    # A handler that set the event could wait for ever for this thread; a put waits for nobody.
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.put(None))
    with logstore.open(path, encoding="utf-8") as store:
        readings = store.stream("readings")
        readings.configure(max_bytes=1 << 30, max_age=timedelta(days=90))  # of a small disk
        shipping = threading.Thread(target=ship, args=(store, uri, stop))
        shipping.start()
        count = len(readings)
        while True:
            try:
                asked.get(timeout=EVERY.total_seconds())
                break
            except queue.Empty:
                readings.add(measure(count))
                count += 1
        stop.set()
        shipping.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
