"""Prevents a look into the index that passes by what it lacks of the published log.

Who reads goes through ``snapshot.read``, whose index has the newest frames laid over it. Whoever
makes an ``IndexTxn`` or a ``Snapshot`` himself stands here, with the reason why that is right.
"""

from __future__ import annotations

import ast

from tests.house.repo import ROOMS, modules, tree

READERS = {
    "logstore/engine/snapshots/snapshot.py": "has the tail laid over it, where the index is behind",
    "logstore/engine/snapshots/published_tail.py": "lays the tail over it",
}
UNDER_LOCK = {
    "logstore/engine/commit/pipeline.py": "a commit, which the index follows before it is decided",
    "logstore/engine/commit/log_tail.py": "brings the index up, or writes a roll",
    "logstore/engine/commit/write_back.py": "writes what it lacks, from memory",
    "logstore/engine/lane/lane.py": "looks for a sealed node, which no plain commit changes",
    "logstore/engine/maintenance/checkpoint.py": "asks whether it lacks anything, and nothing else",
    "logstore/engine/runtime/engine.py": "asks up to where a generation is, and nothing else",
    "logstore/engine/maintenance/background_work.py": "when work is due: rows that no add changes",
    "compaction/segment_rewrite.py": "writes a number of a segment, behind ``locked``",
    "recovery/store_opening.py": "opening and closing: where the index stands, when work is due",
    "recovery/replay.py": "builds an index from the log",
}
IN_A_COMMIT = {
    "logstore/engine/dump/copy.py": "sees what the commit sees",
    "logstore/engine/features/schema_changes.py": "sees what the commit sees",
    "logstore/wire/together.py": "sees what the commit sees",
}
OF_THEIR_OWN = {
    "recovery/next_index.py": "one that is being built, and nobody has open",
    "recovery/readonly.py": "the private index of a store that is only read, which follows the log",
    "recovery/compare.py": "an index that was closed cleanly, beside one that was built anew",
    "recovery/index_validity.py": "asks where an index stands that nobody has open",
    "recovery/salvage/lost.py": "the private index of a salvage",
    "recovery/salvage/salvaged_nodes.py": (
        "the private index of a salvage, or one that was closed cleanly"
    ),
    "recovery/salvage/run.py": "the private index of a salvage, or one that was closed cleanly",
    "recovery/replay.py": "the private index of a store that is only read, or one being built",
    "recovery/unsynced.py": "names by number: a stream that is added to plainly is in the index",
}
ALLOWED = READERS | UNDER_LOCK | IN_A_COMMIT | OF_THEIR_OWN


def test_modules_that_open_index_transactions_are_known() -> None:
    makers = {
        str(path)
        for path in modules(*ROOMS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"IndexTxn", "Snapshot"}
    }
    assert makers == ALLOWED.keys()
