"""An event log: what happened in a shop, read by time, by value, and as it comes.

    python event_log.py [STORE]

Run it twice: the log is kept, and the second run goes on where the first one stopped.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import logstore


def main(path: str) -> None:
    """Log some events, and read them in several ways."""
    with logstore.open(path, encoding="utf-8") as store:
        events = store.stream("events")
        events.configure(max_age=timedelta(days=30))  # older ones go by themselves
        before = events.last_id

        for order in range(1, 6):
            events.add({"kind": "ordered", "order": order, "cents": 990 * order})
            if order % 2:
                events.add({"kind": "paid", "order": order})

        print("in the last hour:", sum(1 for _ in events.range(since=timedelta(hours=1))))
        paid = [event["order"] for event in events.range(where={"kind": "paid"})]
        print("paid:", ", ".join(paid))
        for event in events.follow(before, timeout=0):  # without timeout= it waits for more
            print(f"{event.time:%H:%M:%S} {event['kind']} {event['order']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shop.store")
