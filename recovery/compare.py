"""The store's own index against one that was replayed from the log.

Invariants: the own index is only opened where it was closed cleanly and nobody has the store open
(it is read without locks then); nothing in it is changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

from logstore.engine.runtime.engine import Engine
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, FileSystemError
from logstore.features.feature_list import FEATURES
from logstore.index.env import Generation, open_untouched, translated, verify_rows
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.recovery import index_validity
from logstore.recovery.report import Damage

NOT_CLEAN = "not compared: the store is open, or was not closed cleanly"
REBUILT = "not compared: it is rebuilt when the store is opened"
OLDER = "not compared: it is of an older format; it is rebuilt when the store is opened"
AGREES = "agrees with the log"


def with_own_index(engine: Engine, damage: list[Damage], *, careful: bool = False) -> str:
    """Compare every record and locator; what differs goes into ``damage``."""
    known = index_validity.read_marker(engine.fs, engine.path)
    if why := index_validity.why_not(engine, known):
        return f"{REBUILT} ({why})"
    assert known is not None
    if not known.clean_applied:
        return NOT_CLEAN  # of the same boot: an opener goes on with it
    path = file_names.generation(engine.path, known.generation)
    if careful and (why := cannot_be_read(path, known.generation)):
        damage.append(Damage(0, 0, 0, f"index: {why}: delete the index directory"))
        return "differs from the log"
    try:
        own = open_untouched(path, known.generation)
    except FileNotFoundError:
        return OLDER
    except (CorruptionError, FileSystemError) as exc:
        damage.append(Damage(0, 0, 0, exc.message))
        return "cannot be opened"
    try:
        with translated():
            verify_rows(own)
            found = _differences(engine.index(), own)
    except (CorruptionError, FileSystemError) as exc:
        found = [exc.message]
    finally:
        own.close()
    damage.extend(Damage(0, 0, 0, f"index: {why}: delete the index directory") for why in found)
    return "differs from the log" if found else AGREES


def _differences(replayed: Generation, own: Generation) -> list[str]:
    found: list[str] = []
    with replayed.env.begin() as left, own.env.begin() as right:
        true, kept = IndexTxn(replayed, left), IndexTxn(own, right)
        if true.meta().applied != kept.meta().applied:
            return ["it stands at another position of the log"]
        records = {record.number: record for record in kept.records()}
        for record in true.records():
            other = records.pop(record.number, None)
            if other is None or not _same(record, other):
                found.append(f"stream {record.name!r} is missing or differs")
            elif kept.stream_number(record.name) != record.number:
                found.append(f"the name {record.name!r} is missing")
        found += [f"stream {record.name!r} is not in the log" for record in records.values()]
        rows = zip(true.all_nodes(), kept.all_nodes(), strict=False)
        found += [f"node {a[2]} differs" for a, b in rows if a != b][:10]
        found += _groups(true, kept)
        counted = ["streams", "nodes", "open", "names", "groups"]
        for feature in FEATURES:
            differs = [
                compared.differs
                for compared in feature.compares
                if any(a != b for a, b in zip_longest(compared.rows(true), compared.rows(kept)))
            ]
            found += differs
            if not differs:  # its rows may have others beside them, which are in another order
                counted.append(feature.database)
        counts = (replayed.entries(), own.entries())
    for name in counted:
        if counts[0][name] != counts[1][name]:
            found.append(f"{counts[1][name]} rows of {name}, {counts[0][name]} in the log")
    return found


def _groups(true: IndexTxn, kept: IndexTxn) -> list[str]:
    """Groups with their consumers and pending entries."""
    found: list[str] = []
    for group in true.groups.all_groups():
        number = group.number
        own = kept.groups.group(number)
        if own is None or own.pack() != group.pack():
            found.append(f"group {group.name!r} is missing or differs")
        elif kept.groups.number(group.stream, group.name) != number:
            found.append(f"the name of group {group.name!r} is missing")
        elif kept.groups.consumers(number) != true.groups.consumers(number):
            found.append(f"consumers of group {group.name!r} differ")
        elif any(
            a is None or b is None or a.pack() != b.pack()
            for a, b in zip_longest(true.groups.runs(number), kept.groups.runs(number))
        ):
            found.append(f"pending entries of group {group.name!r} differ")
        elif list(kept.groups.idle(number)) != list(true.groups.idle(number)):
            found.append(f"the idle index of group {group.name!r} differs")
    return found


def _same(left: StreamRecord, right: StreamRecord) -> bool:
    return left.pack() == right.pack()


PROBE_S = 600.0


def cannot_be_read(path: Path, number: int) -> str:
    """Why an index that nobody has open is not to be read; empty if every row of it is right, and
    the rows fit each other."""
    if not sys.executable:
        return ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(path), str(number)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"it could not be looked at: {exc}"
    if done.returncode < 0:
        return f"reading it ends the process (signal {-done.returncode})"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""


def faults(own: Generation) -> list[str]:
    """Read every row; what does not fit together. CorruptionError for a row that is not right."""
    found: list[str] = []
    verify_rows(own)
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
            found += _faults_of_group(index, group)
        for feature in FEATURES:
            if feature.faults is not None:
                found += feature.faults(index)
        counts = own.entries()
    if counts["streams"] != len(records):
        found.append("records are missing")
    return found


def _faults_of_group(index: IndexTxn, group: GroupRecord) -> list[str]:
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


def _probe(path: str, number: str) -> str:
    try:
        own = open_untouched(Path(path), int(number))
        with translated():
            return "; ".join(faults(own)[:5])
    except FileNotFoundError:
        return ""  # of an older format: its opener rebuilds it
    except (CorruptionError, FileSystemError) as exc:
        return exc.message


if __name__ == "__main__":
    sys.exit(_probe(*sys.argv[1:]) or 0)
