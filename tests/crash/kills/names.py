"""The streams of the kill test, and entries whose bytes can be told from their tag alone."""

from __future__ import annotations

import random
import zlib

import logstore

SHARED, CREW, CREW_DEAD = b"shared", "crew", b"dead-crew"
TICKS, TICK_MS = b"ticks", 50  # one entry each so many ms, added by whoever is awake
SIZES = (10, 100, 100, 400, 3000, 9000)
SMALL = (10, 60)
KEYS = ("a", "b", "c")  # of the stream that keeps the newest of each
Tagged = tuple[str, str]  # ID and tag


def own(slot: int) -> bytes:
    """The stream of many operations that only this writer does."""
    return b"own-%d" % slot


def jobs(slot: int) -> bytes:
    """The stream whose group only this writer works with."""
    return b"jobs-%d" % slot


def dead(slot: int) -> bytes:
    """Where that group's dead letters go."""
    return b"dead-%d" % slot


def later(slot: int) -> bytes:
    """The stream with entries for a time that never comes."""
    return b"later-%d" % slot


def soon(slot: int) -> bytes:
    """The stream with entries for a moment from now, added by whoever is awake."""
    return b"soon-%d" % slot


def kept(slot: int) -> bytes:
    """The stream that keeps the newest entry of each key."""
    return b"kept-%d" % slot


def brief(slot: int) -> bytes:
    """The stream whose entries expire: half of them at once, the others in an hour."""
    return b"brief-%d" % slot


def origin_of(dead: logstore.Entry[bytes]) -> str:
    """The ID that a dead letter had where it came from."""
    return dead.fields[b"origin_id"].decode()


def fields(tag: str, sizes: tuple[int, ...] = SIZES) -> dict[str, bytes]:
    """What an entry with a tag holds."""
    rng = random.Random(zlib.crc32(tag.encode()))
    return {"t": tag.encode(), "p": rng.randbytes(rng.choice(sizes))}


def number(id: str) -> tuple[int, int]:
    """An ID as it is ordered."""
    ms, _, seq = id.partition("-")
    return int(ms), int(seq)


def tagged(
    store: logstore.Store[bytes], name: bytes, sizes: tuple[int, ...] = SIZES
) -> list[Tagged]:
    """IDs and tags of a stream, every entry's bytes checked."""
    found: list[Tagged] = []
    for entry in store.stream(name).range():
        tag = entry.fields[b"t"].decode()
        assert entry.fields[b"p"] == fields(tag, sizes)["p"], f"{entry.id} is not what was added"
        found.append((str(entry.id), tag))
    assert found == sorted(found, key=lambda row: number(row[0]))
    return found


def set_up(store: logstore.Store[bytes], slots: int) -> None:
    """Streams, groups and settings that are there from the start."""
    for slot in range(slots):
        store.stream(own(slot)).configure(idempotent_duration=86_400, idempotent_max_ids=10_000)
        store.stream(kept(slot)).configure(compact_by="k")
        group = store.stream(jobs(slot)).group("g", start="0")
        group.configure(max_deliveries=2, dead_letter=dead(slot))
        patient = store.stream(jobs(slot)).group("patient", start="0")
        patient.configure(min_idle=3600)
    store.stream(TICKS).schedule({"t": "tick"}, every=TICK_MS / 1000, name="tick")
    crew = store.stream(SHARED).group(CREW, start="0")
    crew.configure(max_deliveries=4, dead_letter=CREW_DEAD)
