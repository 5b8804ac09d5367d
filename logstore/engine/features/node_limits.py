"""The limits of nodes, changed while the store is open.

Invariants, in crash order: STORE is written anew, whole, with LOCK held; then this process goes by
it. Nodes that are sealed stay as they are. Another process that has the store open goes by the
limits that it read until it opens it anew: nodes of either size are right for all of them.
"""

from __future__ import annotations

from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.log import file_names, storefile
from logstore.options import StoreLimits


def change(engine: Engine, committer: Committer, wanted: dict[str, int]) -> StoreLimits:
    """Set ``node_max_bytes``, ``node_max_entries`` or both, durably; the limits then.

    OptionError for what cannot be, before anything changes; LockTimeoutError; FileSystemError.
    """
    engine.limits._replace(**wanted).check()
    with committer.locked():
        content = storefile.read(engine.fs, engine.path)
        limits = content.limits._replace(**wanted)
        engine.fs.write_atomic(
            engine.path / file_names.STORE, storefile.pack(content._replace(limits=limits))
        )
        engine.limits = limits
    return limits
