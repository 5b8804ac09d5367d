"""Ways to damage a store's files, each with the frames that it touches. Seeded by its caller."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logstore.log.log_reader import LogFrame
from tests.corruption import frames

HEAD_BYTES = 64
Bytes = tuple[int, int]  # from, to: of a segment


@dataclass
class Injection:
    """What was done: to which bytes of which segment (none: not to a segment's bytes); and how many
    bytes that has now, if it is shorter: nobody can tell what was behind them."""

    kind: str
    what: str
    segment: int = 0
    touched: tuple[Bytes, ...] = ()
    left_bytes: int | None = None

    def hits(self, frame: LogFrame) -> bool:
        """Whether a byte of the frame was changed."""
        return frame.segment == self.segment and any(
            frame.offset < end and start < frame.end_offset for start, end in self.touched
        )


Inject = Callable[[Path, Path, random.Random], Injection | None]


def _changed(path: Path, offset: int, data: bytes) -> list[Bytes]:
    """Write, and tell which bytes are others now."""
    before = path.read_bytes()[offset : offset + len(data)]
    frames.patch(path, offset, data)
    places = [at for at, (old, new) in enumerate(zip(before, data, strict=True)) if old != new]
    return [(offset + places[0], offset + places[-1] + 1)] if places else []


def bit(store: Path, _: Path, rng: random.Random) -> Injection | None:
    """One bit anywhere in a segment."""
    number = rng.choice(frames.segments(store))
    path = frames.file(store, number)
    at = rng.randrange(path.stat().st_size)
    frames.flip(path, at, rng.randrange(8))
    return Injection("a bit flipped", f"{number}:{at}", number, ((at, at + 1),))


def _block(size: int) -> Inject:
    def inject(store: Path, _: Path, rng: random.Random) -> Injection | None:
        number = rng.choice(frames.segments(store))
        path = frames.file(store, number)
        blocks = path.stat().st_size // size
        if not blocks:
            return None
        at = rng.randrange(blocks) * size
        touched = _changed(path, at, rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size)]))
        return Injection(f"a block of {size} overwritten", f"{number}:{at}", number, tuple(touched))

    return inject


def _swap(size: int) -> Inject:
    def inject(store: Path, _: Path, rng: random.Random) -> Injection | None:
        number = rng.choice(frames.segments(store))
        path = frames.file(store, number)
        data = path.read_bytes()
        if len(data) < 2 * size:
            return None
        one, other = (at * size for at in rng.sample(range(len(data) // size), 2))
        touched = _changed(path, one, data[other : other + size])
        touched += _changed(path, other, data[one : one + size])
        what = f"{number}:{one}<->{other}"
        return Injection(f"two blocks of {size} swapped", what, number, tuple(touched))

    return inject


def _frame_from(where: str) -> Inject:
    """A frame in the place of another of the same length."""

    def inject(store: Path, other: Path, rng: random.Random) -> Injection | None:
        source = other if where == "another store" else store
        here = frames.everything(store)
        there = frames.everything(source)
        for frame in rng.sample(here, len(here)):
            found = [
                each for each in there
                if each.payload_bytes == frame.payload_bytes
                and (where != "another place" or each.segment == frame.segment)
                and (where != "another segment" or each.segment != frame.segment)
                and (where == "another store" or each.position != frame.position)
            ]  # fmt: skip
            if found:
                taken = rng.choice(found)
                data = frames.file(source, taken.segment).read_bytes()
                data = data[taken.offset : taken.end_offset]
                touched = _changed(frames.file(store, frame.segment), frame.offset, data)
                what = f"{taken.segment}:{taken.offset} at {frame.segment}:{frame.offset}"
                kind = f"a frame from {where}"
                return Injection(kind, what, frame.segment, tuple(touched))
        return None

    return inject


def segment_missing(store: Path, _: Path, rng: random.Random) -> Injection:
    """A whole file."""
    number = rng.choice(frames.segments(store))
    frames.file(store, number).unlink()
    return Injection("a segment missing", str(number))


def segment_cut(store: Path, _: Path, rng: random.Random) -> Injection:
    """The end of a file."""
    number = rng.choice(frames.segments(store))
    path = frames.file(store, number)
    size = path.stat().st_size
    keep = rng.randrange(HEAD_BYTES, size)
    with path.open("r+b") as file:
        file.truncate(keep)
    return Injection("a segment cut short", f"{number}:{keep}", number, ((keep, size),), keep)


def segment_foreign(store: Path, other: Path, rng: random.Random) -> Injection:
    """The same segment of another store."""
    number = rng.choice(frames.segments(store))
    path = frames.file(store, number)
    size = path.stat().st_size
    left = path.write_bytes(frames.file(other, number).read_bytes())
    shorter = left if left < size else None
    return Injection("a segment of another store", str(number), number, ((0, size),), shorter)


def _small(kind: str, pattern: str) -> Inject:
    def inject(store: Path, _: Path, rng: random.Random) -> Injection:
        path = rng.choice(sorted(store.glob(pattern)))
        at = rng.randrange(path.stat().st_size)
        frames.flip(path, at, rng.randrange(8))
        return Injection(kind, f"{path.name}:{at}")

    return inject


INJECTIONS: tuple[Inject, ...] = (
    bit, bit, _block(512), _block(4096), _swap(512), _swap(4096), _frame_from("another place"),
    _frame_from("another segment"), _frame_from("another store"), segment_missing, segment_cut,
    segment_foreign, _small("a hint damaged", "log/*.hint"),
    _small("a checkpoint damaged", "checkpoint/*.ckpt"), _small("STORE damaged", "STORE"),
    _small("BOOT damaged", "BOOT"),
)  # fmt: skip
