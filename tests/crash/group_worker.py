"""A worker of the exactly-once test: reads from a group, adds to another stream and acks, in one
transaction; now and then it stalls for longer than others wait before they claim."""

from __future__ import annotations

import random
import sys
import time

import logstore

IDLE_S = 0.15


def run(path: str, name: str, seed: int) -> None:
    """Work until killed."""
    chance = random.Random(seed)
    store = logstore.open(path, lock_timeout=30, encoding="utf-8")
    group = store.stream("in").group("g")
    while True:
        for entry in group.read(name, count=5, timeout=0.1, min_idle=IDLE_S):
            if chance.random() < 0.02:
                time.sleep(2 * IDLE_S)
            assert entry.fields is not None
            try:
                with store.transaction() as tx:
                    tx.stream("out").add({"n": entry.fields["n"], "by": name})
                    tx.ack(entry)
            except logstore.NotOwnerError:
                continue


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
