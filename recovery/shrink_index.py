"""Copying the index into its next generation without free pages: how it shrinks beside writers.

After many deletes most of LMDB's file is free pages, and the file never shrinks by itself. A copy
of what is in use takes a fraction of the time of a rebuild, so writers may wait for it.

Invariants: LOCK is held, so that nobody writes to the old generation meanwhile; the copy has a
temporary name until it is whole; until BOOT names it, a crash leaves the old one valid, and from
then on the copy, behind which the log goes on.
"""

from __future__ import annotations

from logstore.engine.runtime.engine import Engine, log
from logstore.log import names
from logstore.recovery import shutdown_marker


def copy(engine: Engine) -> int:
    """Make the next generation from the one that is valid; its number. LOCK is held."""
    fs, store = engine.fs, engine.index_home
    before = engine.index()
    number = 1 + max([before.number, *names.generations(fs, store)])
    path = names.generation(store, number)
    temporary = path.with_name(path.name + names.TEMPORARY)
    fs.remove_tree(temporary)
    fs.make_directory(temporary)
    before.copy_used(temporary)
    fs.rename(temporary, path)
    shutdown_marker.write(
        fs,
        store,
        shutdown_marker.dirty(number, shutdown_marker.identity(path / "data.mdb"), engine.promised),
    )
    log.info("index generation %d was copied into %d without its free pages", before.number, number)
    return number
