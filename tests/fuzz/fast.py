"""``python -m tests.fuzz.fast``: the compiled codec alone, half a million inputs a second, without
coverage to guide them.

Targets of `python -m tests.fuzz` hold two codecs against each other, which costs; here inputs are
changed byte by byte, and only what C code must not do is looked for: reading or writing memory that
is not its own (it ends the process, at once if it was built with -fsanitize=address), errors of
other types, a node that one function takes and another refuses. The seed is printed; with the same
one the same inputs are tried.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.codec import native_or_none
from logstore.errors import CorruptNodeError, Error
from tests.fuzz.corpus import inputs

ROUND = 4096  # inputs between two looks at the clock
CHANGES = 12  # to one input before the next one is taken
Run = Callable[[bytes], object]


class Fast(NamedTuple):
    """A function of the compiled codec: whose inputs it begins with, and how they are cut."""

    inputs: str
    skip: int
    run: Run
    errors: tuple[type[Exception], ...]


def _functions(native: Any) -> dict[str, Fast]:
    def node(lp: bytes) -> None:
        native.validate(lp, 5, 5)
        # What it takes all others take.
        native.survey(lp, 5, 5)
        native.counts(lp)
        found = native.ids(lp, 5, 5)
        native.last_live_id(lp, 5, 5)
        native.first_live_id(lp, 5, 5)
        for id in found[:2]:
            native.find(lp, 5, 5, *id[:2])

    def unpack(data: bytes) -> None:
        size = data[0] | data[1] << 8 if len(data) > 1 else 0
        assert len(native.lzf_decompress(data[2:], size)) == size

    def requests(data: bytes) -> None:
        native.resp_requests(bytearray(data), 0, 1000)

    def run(data: bytes) -> None:
        found = native.PendingRun.unpack(data)
        if len(found):
            found.find(found.first)
            found.between(found.first, found.last)
            found.due(1 << 62)

    def batch(data: bytes) -> None:
        native.NodeBatch(data, 0, 100, None, (0, 0))

    return {
        "validate": Fast("nodes", 1, node, (CorruptNodeError,)),
        "entries": Fast("nodes", 1, lambda lp: native.entries(lp, 5, 5), (CorruptNodeError,)),
        "survey": Fast("nodes", 1, lambda lp: native.survey(lp, 5, 5), (CorruptNodeError,)),
        "lzf": Fast("lzf", 0, unpack, (CorruptNodeError,)),
        "requests": Fast("requests", 1, requests, (Error, ValueError)),
        "runs": Fast("rows", 1, run, (Error, ValueError)),
        "batches": Fast("batches", 1, batch, (Error,)),
    }


def mutate(fast: Fast, rng: random.Random, seconds: float) -> int:
    """Try inputs for so many seconds; how many."""
    sound = [data[fast.skip :] for data in inputs(fast.inputs)]
    sound = [data for data in sound if data]
    run, errors, count = fast.run, fast.errors, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        places = rng.randbytes(2 * ROUND)
        values = rng.randbytes(ROUND)
        data = bytearray()
        for at in range(ROUND):
            if at % CHANGES == 0:
                data[:] = sound[rng.randrange(len(sound))]
                if values[at] & 1 and len(data) > 2:
                    del data[rng.randrange(1, len(data)) :]
            place = (places[2 * at] | places[2 * at + 1] << 8) % len(data)
            data[place] = values[at]
            try:
                run(bytes(data))
            except errors:
                pass
            except Exception as error:
                error.add_note(f"input {data.hex()}")
                raise
        count += ROUND
    return count


def main() -> None:
    """Try all functions, each its part of the time; a line for each."""
    if native_or_none is None:
        sys.exit("the compiled codec is not there")
    functions = _functions(native_or_none)
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fast", description=__doc__)
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help=", ".join(functions))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    given = parser.parse_args()
    names = given.functions or list(functions)
    print(f"seed {given.seed}")
    total = 0
    for name in names:
        begun = time.monotonic()
        rng = random.Random(f"{given.seed} {name}")
        count = mutate(functions[name], rng, given.seconds / len(names))
        total += count
        took = time.monotonic() - begun
        print(f"{name}: {count:,} inputs, {count / took:,.0f} a second, no finding", flush=True)
    print(f"{total:,} inputs")


if __name__ == "__main__":
    main()
