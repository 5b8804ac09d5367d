"""Whether an index that nobody has open can be read: looked at in a process of its own.

LMDB's pages carry no checksum, and a damaged one may end the process that follows it (SIGSEGV,
SIGBUS, an assertion). So a process of its own walks all of it first: every row against its CRC, and
the rows against each other. What it got through, others get through.

Invariants: nothing is written, no lock is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, FileSystemError
from logstore.features.registry import FEATURES
from logstore.index.env import Generation, open_untouched, translated
from logstore.index.group_keys import GroupRecord
from logstore.index.txn import IndexTxn
from logstore.index.verify import every_row

PROBE_S = 600.0


def cannot_be_read(path: Path, number: int) -> str:
    """Why an index that nobody has open is not to be read; empty if every row of it is right, and
    the rows fit each other."""
    if not sys.executable:
        return ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(path), str(number)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"it could not be looked at: {exc}"
    if done.returncode < 0:
        return f"reading it ends the process (signal {-done.returncode})"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""


def faults(own: Generation) -> list[str]:
    """Read every row; what does not fit together. CorruptionError for a row that is not right."""
    found: list[str] = []
    every_row(own)
    with own.env.begin() as txn:
        index = IndexTxn(own, txn)
        index.meta()
        records = list(index.records())
        for record in records:
            if index.stream_number(record.name) != record.number:
                found.append(f"the name {record.name!r} is missing")
            live, before = 0, (-1, -1)
            for master, locator in index.nodes(record.number):
                live += locator.live
                if master <= before:
                    found.append(f"nodes of {record.name!r} are out of order")
                before = master
            node = index.open_node(record.number) if record.open_version else None
            if node is not None and node.lp is not None:
                live += nodes.open_counts(node)[0]
            if live != record.length:
                found.append(f"{record.name!r} has {live} entries, not {record.length}")
        for group in index.groups.all_groups():
            found += _group_faults(index, group)
        for feature in FEATURES:
            if feature.faults is not None:
                found += feature.faults(index)
        counts = own.entries()
    if counts["streams"] != len(records):
        found.append("records are missing")
    return found


def _group_faults(index: IndexTxn, group: GroupRecord) -> list[str]:
    txn = index.groups
    number = group.number
    if txn.number(group.stream, group.name) != number:
        return [f"the name of group {group.name!r} is missing"]
    runs = list(txn.runs(number))
    if sum(map(len, runs)) != group.pending or len(txn.consumers(number)) != group.consumers:
        return [f"pending entries or consumers of group {group.name!r} are missing"]
    if sum(1 for _ in txn.idle(number)) != len(runs):
        return [f"the idle index of group {group.name!r} is not whole"]
    return []


def _main(path: str, number: str) -> str:
    try:
        own = open_untouched(Path(path), int(number))
        with translated():
            return "; ".join(faults(own)[:5])
    except FileNotFoundError:
        return ""  # of an older format: its opener rebuilds it
    except (CorruptionError, FileSystemError) as exc:
        return exc.message


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]) or 0)
