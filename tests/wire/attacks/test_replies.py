"""Prevents memory for replies beyond what is sent: for values before the first is counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from logstore.options import NAME_MAX_BYTES
from tests.wire.attacks.case import MIB, AttackCase, Budget, check
from tests.wire.attacks.servers import Attack, Target

ENTRIES = 1000  # per unit of size
GROUPS = 100


def _entries(target: Target, size: int) -> None:
    """A long stream of small entries: all are pending in the group g, and new in the group n."""
    add = [b"XADD", b"long", b"*", b"f", b"value"]
    target.fill([add] * (size * ENTRIES))
    with target.line(unix=True) as line:
        for name in ("g", "n"):
            assert line("XGROUP", "CREATE", "long", name, "0") == b"OK"
        read = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 10_000, "STREAMS", "long", ">")
        while isinstance(line(*read), list):  # null at last
            pass


def _groups(target: Target, size: int) -> None:
    """A stream of many groups, of which one has many consumers, and as many streams."""
    count = size * GROUPS
    target.fill([[b"XADD", b"s%d" % at, b"*", b"f", b"v"] for at in range(count)])
    target.fill([[b"XGROUP", b"CREATE", b"s0", b"g%d" % at, b"0"] for at in range(count)])
    target.fill([[b"XGROUP", b"CREATECONSUMER", b"s0", b"g0", b"c%d" % at] for at in range(count)])


def _names(target: Target, size: int) -> None:
    """Streams whose names are as long as names may be, in MiB in all."""
    count = size * MIB // NAME_MAX_BYTES
    target.fill(
        [[b"XADD", b"%05d" % at * (NAME_MAX_BYTES // 5), b"*", b"f", b"v"] for at in range(count)]
    )


def ask(target: Target, size: int, *, words: str) -> str:
    """One request, whose reply is all that there is."""
    with target.line(unix=True) as line:
        reply = line(*words.format(count=size * ENTRIES).split())
    return f"{len(reply)} rows"


def _asking(words: str) -> Attack:
    return partial(ask, words=words)


OF_ENTRIES = {
    "XREADGROUP of what is new": "XREADGROUP GROUP n c STREAMS long >",
    "XREADGROUP of a history": "XREADGROUP GROUP g c STREAMS long 0",
    "XAUTOCLAIM of it all": "XAUTOCLAIM long g d 0 - COUNT {count}",
    "XPENDING of it all": "XPENDING long g - + {count}",
    "XINFO STREAM FULL of it all": "XINFO STREAM long FULL COUNT 0",
}
OF_GROUPS = {
    "XINFO GROUPS of very many": "XINFO GROUPS s0",
    "XINFO CONSUMERS of very many": "XINFO CONSUMERS s0 g0",
}
CASES = [
    *(AttackCase(name, _asking(words), small=30, full=300, prepare=_entries,
           budget=Budget(memory_bytes=200 * MIB, files=4))
      for name, words in OF_ENTRIES.items()),
    *(AttackCase(name, _asking(words), small=30, full=1000, prepare=_groups,
           budget=Budget(memory_bytes=100 * MIB, files=4))
      for name, words in OF_GROUPS.items()),
    # The reply is 30 MiB, and twice that while it is sent; with its names as values, four times.
    AttackCase("KEYS of very long names", _asking("KEYS *"), small=30, full=30, prepare=_names,
         budget=Budget(memory_bytes=90 * MIB, files=4)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attack(case: AttackCase, tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(check(case, tmp_path))
