"""Prevents damage of the log from going unnoticed, from being read as something, from spreading.

`LOGSTORE_CORRUPTION=<seed>` gives the seed; it is printed. `make torture` does more of everything.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import logstore
from logstore.errors import CorruptFrameError, CorruptionError, Error
from logstore.format import Kind
from logstore.log import log_reader
from logstore.log.log_reader import LogFrame
from logstore.log.segment_writer import crc_seed
from logstore.recovery.check import check
from logstore.recovery.report import Damage
from logstore.recovery.salvage.run import salvage
from tests import figures
from tests.corruption import frames, shop
from tests.corruption.injections import INJECTIONS, Injection
from tests.corruption.reading import held_against, read
from tests.corruption.shop import Shop

SEED = int(os.environ.get("LOGSTORE_CORRUPTION", "20"))
ROUNDS = 3 * figures.times()
READ_EVERY = 4
BITS_OF_A_KIND = 2 * figures.times()


class Memory:
    """A segment's bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``."""
        return bytes(self.data[offset : offset + size_bytes])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Damaged as copies only."""
    return shop.make(tmp_path_factory.mktemp("shop") / "store", SEED)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another store with frames of the same lengths."""
    return shop.make(tmp_path_factory.mktemp("other") / "store", SEED).path


def sampled(store: Path, rng: random.Random) -> list[LogFrame]:
    """Some frames of each kind, the shorter ones."""
    found: list[LogFrame] = []
    everything = frames.everything(store)
    for kind in sorted({frame.kind for frame in everything}):
        of_kind = sorted((f for f in everything if f.kind == kind), key=lambda f: f.payload_bytes)
        of_kind = of_kind[: max(1, len(of_kind) // 2)]
        found += rng.sample(of_kind, min(len(of_kind), BITS_OF_A_KIND))
    return found


def test_every_bit_of_a_frame(made: Shop) -> None:
    """No frame with one bit changed passes, and the next one is found behind it."""
    rng = random.Random(SEED)
    uuid = frames.uuid(made.path)
    seed = crc_seed(uuid)
    bits = 0
    kinds: set[int] = set()
    for frame in sampled(made.path, rng):
        memory = Memory(frames.file(made.path, frame.segment).read_bytes())
        end = len(memory.data)
        kinds.add(frame.kind)
        for place in range(frame.offset * 8, frame.end_offset * 8):
            memory.data[place // 8] ^= 1 << place % 8
            with pytest.raises(CorruptFrameError):
                log_reader.read_frame(memory, seed, frame.segment, frame.offset, end)
            if not place % 61:
                following = log_reader.resume_offset(memory, seed, frame.segment, frame.offset, end)
                assert following == frame.end_offset
            memory.data[place // 8] ^= 1 << place % 8
            bits += 1
    assert len(kinds) >= 18
    print(f"\n{bits:,} bits of frames of {len(kinds)} kinds: each one noticed")
    figures.record("corruption: bits of frames", injected=bits, detected=bits)


def looked_at(copy: Path) -> list[Damage] | Error:
    """What check says."""
    try:
        return check(copy).damage
    except CorruptionError as exc:
        return exc
    except (logstore.NotAStoreError, logstore.FormatVersionError) as exc:
        return exc  # the first bytes of STORE


def spreads(found: list[Damage], done: Injection, everything: list[LogFrame]) -> list[LogFrame]:
    """Frames that were not touched, and are within the ranges that are called damaged."""
    ranges = [each for each in found if each.to_offset > each.from_offset]
    return [
        frame for frame in everything
        if not done.hits(frame) and any(
            each.segment == frame.segment
            and each.from_offset < frame.end_offset and frame.offset < each.to_offset
            for each in ranges
        )
    ]  # fmt: skip


def untold(found: list[Damage], done: Injection, everything: list[LogFrame]) -> list[LogFrame]:
    """Frames that were touched, and are not within such a range, as far as the file goes."""
    return [
        frame for frame in everything
        if done.hits(frame) and not any(
            each.segment == frame.segment and each.from_offset <= frame.offset
            and min(frame.end_offset, done.left_bytes or frame.end_offset) <= each.to_offset
            for each in found
        )
    ]  # fmt: skip


def test_damage_of_files_is_found_where_it_is(made: Shop, other: Path, tmp_path: Path) -> None:
    """By `check`, without a read, and no neighbour is called damaged; some are salvaged as well:
    nothing comes out that was not put in, and all that does not come out is told."""
    print(f"\nLOGSTORE_CORRUPTION={SEED}")
    rng = random.Random(SEED)
    everything = frames.everything(made.path)
    injected: Counter[str] = Counter()
    detected: Counter[str] = Counter()
    salvages = gone = 0
    for number in range(ROUNDS * len(INJECTIONS)):
        copy = tmp_path / f"{number}"
        shutil.copytree(made.path, copy, ignore=shutil.ignore_patterns("index", "WAKE"))
        done = INJECTIONS[number % len(INJECTIONS)](copy, other, rng)
        if done is None or (done.segment and not done.touched):
            shutil.rmtree(copy)
            continue  # too small, or the same bytes
        injected[done.kind] += 1
        found = looked_at(copy)
        detected[done.kind] += bool(found)
        assert found, done
        if isinstance(found, list):
            assert not spreads(found, done, everything), (done, found)
            assert not untold(found, done, everything), (done, found)
        if number % READ_EVERY == 1 and isinstance(found, list):
            report = salvage(copy, tmp_path / "new")
            gone += held_against(made, read(tmp_path / "new"), report)
            salvages += 1
            shutil.rmtree(tmp_path / "new")
        shutil.rmtree(copy)
    for kind, count in sorted(injected.items()):
        print(f"{kind:32} injected {count:6,}  detected {detected[kind]:6,}")
    print(f"{salvages} of them salvaged: {gone} entries gone, all told; wrong values: 0")
    assert injected == detected
    figures.record(
        "corruption", injected=injected.total(), detected=detected.total(), salvaged=salvages,
        wrong_values=0, **{kind: f"{detected[kind]} of {n}" for kind, n in injected.items()},
    )  # fmt: skip


def test_a_trusted_index_does_not_hide_it(made: Shop, tmp_path: Path) -> None:
    """Read beside damage, the store open and its index as it was: right, or refused."""
    rng = random.Random(SEED + 1)
    path = tmp_path / "store"
    shutil.copytree(made.path, path)
    with logstore.open(path, background=False):
        pass  # its index is built anew, and closed cleanly
    nodes = [each for each in frames.everything(path) if each.kind == Kind.NODE]
    spoilt = rng.sample(nodes, len(nodes) // 5)
    for frame in spoilt:
        file = frames.file(path, frame.segment)
        frames.flip(file, rng.randrange(frame.offset, frame.end_offset), rng.randrange(8))
    refused = read_right = 0
    with logstore.open(path, background=False) as store:
        assert store.recovery["index_trusted"]
        for name, live in made.live.items():
            for id, pairs in live.items():
                try:
                    found = store.stream(name)[id].pairs
                except CorruptFrameError:
                    refused += 1
                else:
                    assert found == pairs
                    read_right += 1
    assert refused
    assert read_right > 4 * refused / 2
