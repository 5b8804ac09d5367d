"""Walking a recording: at every operation, the states that a kill or a power cut may leave there.

Every state has a name, ``workload/cut/variant``, and is made from the seed and its name alone, so
that one can be made again without the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from logstore.log import file_names
from tests.crash.states.disk import SYNCS, Disk, Image, Inode
from tests.crash.states.recording import STORE, Index, Moment
from tests.crash.states.steps import ProtocolStep
from tests.crash.states.workload import RecordedWorkload

SAME, REMOUNTED, RESTARTED = "same boot", "remounted", "another boot"
NOT_COUNTED = tuple(
    f"{STORE}/{name}" for name in (file_names.WAKE, file_names.LOCK, file_names.USERS)
)


@lru_cache(maxsize=256)
def _digest(content: bytes) -> bytes:
    """Most files are the same from one state to the next."""
    return blake2b(content, digest_size=16).digest()


class State(NamedTuple):
    """A directory as a crash may leave it, and what must be found in it."""

    name: str
    step: ProtocolStep  # that was cut
    how: str
    image: Image
    index: Index
    trustworthy: Index  # generations that may be trusted, if they are still like this
    boot: str
    least: int  # steps of the workload that must be there,
    most: int  # and that may

    def digest(self) -> bytes:
        """Of all that may matter: names, bytes, the index, whether the machine was restarted."""
        found = blake2b(self.boot.encode(), digest_size=16)
        for path, content in self.image.items():
            if path not in NOT_COUNTED:
                found.update(
                    path.encode() + (b"/" if content is None else b"\x00%d" % len(content))
                )
                found.update(content or b"")
        for name, file in sorted(self.index.items()):
            found.update(b"\x01" + name.encode() + file.content)
        return found.digest()


def states(run: RecordedWorkload, seed: str, losses: int, *, only: str = "") -> Iterator[State]:
    """The states of all cuts of a recording; ``losses`` random ones at each operation."""
    disk = Disk()
    disk.load(run.begin, run.numbers, run.durable)
    for cut, moment in enumerate(run.moments):
        wanted = not only or only.startswith(f"{run.workload.name}/{cut}/")
        syncs = moment.event.kind in SYNCS
        if wanted:
            yield from _kills(run, disk, cut, moment)
            yield _least(run, disk, cut, moment, {}, "nothing un-synced, no index")
            if moment.synced:
                yield _least(run, disk, cut, moment, moment.synced, "nothing un-synced")
        if not syncs:
            disk.apply(moment.event)
        if wanted:
            for fill in ("past", "zero") if moment.event.kind != "mark" else ():
                image, how = disk.grown(fill), f"no un-synced byte, {fill}"
                yield _state(run, cut, moment, how, image, {}, RESTARTED)
            for number in range(losses if moment.event.kind != "mark" else max(1, losses // 3)):
                yield _losses(run, disk, cut, moment, seed, number)
        if syncs:
            disk.apply(moment.event)


def _state(
    run: RecordedWorkload, cut: int, moment: Moment, how: str, image: Image, index: Index, boot: str
) -> State:  # fmt: skip
    killed = boot == SAME
    least = moment.acknowledged if killed else moment.durable
    trustworthy = moment.index if killed else moment.synced
    return State(
        f"{run.workload.name}/{cut}/{how}", moment.step, how, image, index, trustworthy, boot,
        least, moment.acknowledged + 1,
    )  # fmt: skip


def _kills(run: RecordedWorkload, disk: Disk, cut: int, moment: Moment) -> Iterator[State]:
    """Killed before the operation, or in the middle of a write: the kernel keeps what it has."""
    image = disk.everything()
    wake = f"{STORE}/{file_names.WAKE}"
    if wake in image:
        image[wake] = moment.wake
    yield _state(run, cut, moment, "killed", image, moment.index, SAME)
    yield _state(run, cut, moment, "killed, index deleted", image, {}, SAME)
    event = moment.event
    if event.kind == "write" and len(event.data) > 1:
        inode = disk.inodes[event.inode]
        path = _path_of(disk, inode)
        before = bytes(inode.current)
        for part in (1, len(event.data) // 2, len(event.data) - 1):
            torn = bytearray(before.ljust(event.offset, b"\x00"))
            torn[event.offset : event.offset + part] = event.data[:part]
            some = image | {path: bytes(torn)}
            yield _state(run, cut, moment, f"killed after {part} bytes", some, moment.index, SAME)


def _path_of(disk: Disk, inode: Inode) -> str:
    def look(folder: object, path: str) -> str:
        for name, found in folder.now.items():  # type: ignore[attr-defined]
            if found is inode:
                return path + name
            if not isinstance(found, Inode) and (deeper := look(found, f"{path}{name}/")):
                return deeper
        return ""

    return look(disk.root, "")


def _least(
    run: RecordedWorkload, disk: Disk, cut: int, moment: Moment, index: Index, how: str
) -> State:
    return _state(run, cut, moment, how, disk.durable(), index, RESTARTED)


def _losses(
    run: RecordedWorkload, disk: Disk, cut: int, moment: Moment, seed: str, number: int
) -> State:  # fmt: skip
    rng = random.Random(f"{seed}/{run.workload.name}/{cut}/{number}")
    image = disk.after_power_cut(rng)
    wake = f"{STORE}/{file_names.WAKE}"
    if wake in image and rng.random() < 0.5:
        image[wake] = moment.wake
    kind = rng.choice(("absent", "synced", "current", "junk"))
    index: Index = {}
    if kind == "synced":
        index = moment.synced
    elif kind != "absent":
        # Bytes may reach the disk before the time of their writing does: it looks untouched.
        for name, file in moment.index.items():
            then = moment.synced.get(name)
            if then is not None and then.content == file.content:
                index[name] = then  # all of it is durable
                continue
            content = file.content if kind == "current" else b"\xff" * len(file.content)
            if then is not None:
                index[name] = then._replace(content=content[: len(then.content)])
            else:
                index[name] = file._replace(content=content)
    boot = rng.choice((RESTARTED, RESTARTED, REMOUNTED))
    how = f"power cut {number}"
    return _state(run, cut, moment, how, image, index, boot)
