"""Scenes: what a process is doing when it is stopped, who else is there, what they do meanwhile."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from logstore.log import file_names
from tests.interleaving import works
from tests.interleaving.handle import Answer, StoreHandle, Work
from tests.interleaving.points import Point

NTH_DEAD = 900  # the entry of a commit whose writer was killed


class Scene(NamedTuple):
    """What A does, and is stopped in."""

    name: str
    work: Work
    a_open: bool = True  # A has the store open before
    b_open: bool = True  # B, too
    killed: Point | None = None  # where a third process was killed, in an add
    counts: bool = False  # its commit is complete in the log
    before: bool = False  # B adds an entry after A has opened and read
    empty: bool = False  # there is no store
    switches: bool = False  # the index: others may have to open it anew, for which they need LOCK


def _repair(at: StoreHandle) -> Answer:
    """A fork closes the index, and then it is gone."""
    works.fork()
    shutil.rmtree(at.path / file_names.INDEX)
    return works.RANGE.do(at)


def _range_followed(at: StoreHandle) -> Answer:
    assert at.reading is not None
    return [str(entry.id) for entry in at.reading.stream("a").range()]


def _range_readonly(at: StoreHandle) -> Answer:
    with at.open(readonly=True) as store:
        return [str(entry.id) for entry in store.stream("a").range()]


_ids = works.RANGE.model
REPAIR = Work("repair", _repair, _ids)
FOLLOW = Work("follow", _range_followed, _ids)
READONLY = Work("read-only", _range_readonly, _ids)
DEAD = works.add("c", NTH_DEAD)
ROLLED = works.many("c", NTH_DEAD, 16, 3000)
TORN, WHOLE = Point("commit: write the rest of segment", 1), Point("commit: sync segment", 1)
ROLLING = Point("seal and roll: rename to segment", 1)

SCENES = (
    Scene("add", works.add("a", 100)),
    Scene("add that rolls", works.many("c", 200, 16, 3000)),
    Scene("transaction", works.transaction(300)),
    Scene("group read", works.group_read("two", 3)),
    Scene("ack", works.ack(1, 2)),
    Scene("delete", works.delete(8)),
    Scene("rename", works.rename("c", "d")),
    Scene("copy", works.copy("a", "a2")),
    Scene("retention", works.retain()),
    Scene("range", works.RANGE),
    Scene("scan", works.SCAN),
    Scene("fork, range", works.FORK_RANGE),
    Scene("read-only", READONLY),
    Scene("follow", FOLLOW, before=True),
    Scene("info", works.INFO),
    Scene("check", works.CHECK, a_open=False),
    Scene("checkpoint", works.CHECKPOINT),
    Scene("compact", works.COMPACT),
    Scene("purge", works.PURGE, switches=True),
    Scene("backup", works.BACKUP),
    Scene("copy the index", works.SHRINK, switches=True),
    Scene("repair", REPAIR, switches=True),
    Scene("index deleted", works.LOSE, a_open=False, switches=True),
    Scene("join", works.opened(works.RANGE), a_open=False),
    Scene("close", works.closing()),
    Scene("dead writer, whole", works.add("a", 100), killed=WHOLE, counts=True),
    Scene("dead writer, torn", works.add("a", 100), killed=TORN),
    Scene("dead writer, roll", works.add("a", 100), killed=ROLLING),
    Scene("open", works.opened(works.RANGE), a_open=False, b_open=False),
    Scene("open, whole tail", works.opened(works.RANGE), a_open=False, b_open=False,
          killed=WHOLE, counts=True),
    Scene("open, torn tail", works.opened(works.RANGE), a_open=False, b_open=False, killed=TORN),
    Scene("open, roll", works.opened(works.RANGE), a_open=False, b_open=False, killed=ROLLING),
    Scene("last close", works.closing(), b_open=False),
    Scene("create", works.opened(works.add("x", 1)), a_open=False, b_open=False, empty=True),
)  # fmt: skip

# What others do meanwhile: B has the store open, C opens it for each and closes it again.
OTHERS = (
    works.READ, works.SCAN, works.FORK, works.INFO, works.READONLY, works.FOLLOW, works.CHECK,
    works.add("a", 500), works.many("c", 510, 16, 3000), works.transaction(540), works.delete(1),
    works.trim(5), works.group_read("three", 2), works.ack(2, 3), works.rename("d", "c2"),
    works.copy("c", "c3"), works.retain(), works.SYNC, works.CHECKPOINT, works.COMPACT,
    works.PURGE, works.BACKUP, works.SHRINK, works.opened(works.READ),
    works.opened(works.add("a", 560)), works.opened(works.COMPACT), works.LOSE,
)  # fmt: skip
# Of those, what a process does that has nothing open.
ALONE = (
    works.READONLY, works.CHECK, works.opened(works.READ), works.opened(works.add("a", 560)),
    works.opened(works.many("c", 510, 16, 3000)), works.opened(works.COMPACT),
    works.opened(works.PURGE), works.opened(works.CHECKPOINT), works.opened(works.BACKUP),
    works.opened(works.SHRINK), works.LOSE,
)  # fmt: skip
# While there is no store, or an empty one.
EMPTY = (
    works.READONLY, works.CHECK, works.opened(works.READ), works.opened(works.add("x", 560)),
    works.opened(works.CHECKPOINT),
)  # fmt: skip


def others(scene: Scene) -> tuple[Work, ...]:
    """What others may do in a scene."""
    if scene.empty:
        return EMPTY
    return OTHERS if scene.b_open else ALONE
