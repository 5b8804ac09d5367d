"""The store's own index against one that was replayed from the log.

Invariants: the own index is only opened where it was closed cleanly and nobody has the store open
(it is read without locks then); nothing in it is changed.
"""

from __future__ import annotations

from logstore.engine.core import Engine
from logstore.errors import CorruptionError, FileSystemError
from logstore.index.env import Generation, open_untouched
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import names
from logstore.recovery import boot, trust
from logstore.recovery.report import Damage

NOT_CLEAN = "not compared: the store is open, or was not closed cleanly; it is rebuilt then"
AGREES = "agrees with the log"


def with_own_index(engine: Engine, damage: list[Damage]) -> str:
    """Compare every record and locator; what differs goes into ``damage``."""
    try:
        known = boot.read(engine.fs, engine.path)
    except CorruptionError:
        known = None
    if known is None or not known.clean_applied:
        return NOT_CLEAN
    path = names.generation(engine.path, known.generation)
    if trust.why_not(engine, known):
        return NOT_CLEAN
    try:
        own = open_untouched(path, known.generation)
    except (CorruptionError, FileSystemError) as exc:
        damage.append(Damage(0, 0, 0, exc.message))
        return "cannot be opened"
    try:
        found = _differences(engine.index(), own)
    except CorruptionError as exc:
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
        counts = (replayed.entries(), own.entries())
    for name in ("streams", "nodes", "open", "names"):
        if counts[0][name] != counts[1][name]:
            found.append(f"{counts[1][name]} rows of {name}, {counts[0][name]} in the log")
    return found


def _same(left: StreamRecord, right: StreamRecord) -> bool:
    return left.pack() == right.pack()
