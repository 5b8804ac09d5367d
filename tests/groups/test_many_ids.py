"""Prevents a request of many IDs from doing other than as many requests of one ID each.

IDs are walked in order and looked up together, whatever the order they are named in, however often,
and whether they are there.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logstore.redis

SEED = 20261122
ENTRIES = 350  # of some nodes
COMMANDS: list[tuple[str, ...]] = [
    ("XDEL", "s"), ("XACK", "s", "g"), ("XDELEX", "s", "KEEPREF", "IDS"),
    ("XDELEX", "s", "DELREF", "IDS"), ("XDELEX", "s", "ACKED", "IDS"),
    ("XACKDEL", "s", "g", "KEEPREF", "IDS"), ("XACKDEL", "s", "g", "DELREF", "IDS"),
    ("XACKDEL", "s", "g", "ACKED", "IDS"), ("XCLAIM", "s", "g", "d", "0"),
]  # fmt: skip


def _fill(client: Any) -> None:
    for at in range(1, ENTRIES + 1):
        client.xadd("s", {"f": at}, id=f"{at}-1")
    client.execute_command("XDEL", "s", *(f"{at}-1" for at in range(240, ENTRIES)))
    for at in range(ENTRIES, 2 * ENTRIES):
        client.xadd("s", {"f": at}, id=f"{at}-2")
    for group in ("g", "h"):
        client.xgroup_create("s", group, id="0")
        client.xreadgroup(group, "c", {"s": ">"}, count=500)
    client.execute_command("XACK", "s", "g", *(f"{at}-1" for at in range(100, 130)))
    read = [f"{at}-{seq}" for at in range(300) for seq in (1, 2)]
    client.execute_command("XACK", "s", "h", *read)


def _told(client: Any) -> Any:
    return (
        client.xrange("s"), client.xinfo_stream("s")["length"],
        [client.execute_command("XPENDING", "s", group) for group in ("g", "h")],
        [[each["message_id"] for each in client.xpending_range("s", group, "-", "+", 2000)]
         for group in ("g", "h")],
    )  # fmt: skip


def _one_by_one(client: Any, words: tuple[str, ...], ids: list[str]) -> Any:
    if words[-1] == "IDS":
        return [client.execute_command(*words, 1, each)[0] for each in ids]
    found = [client.execute_command(*words, each) for each in ids]
    return sum(found) if isinstance(found[0], int) else [row for rows in found for row in rows]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_as_one_by_one(words: tuple[str, ...], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with (
        logstore.redis.Redis(tmp_path / "many") as many,
        logstore.redis.Redis(tmp_path / "single") as single,
    ):
        for client in (many, single):
            _fill(client)
        for round_ in range(3):
            count = rng.choice((5, 60, 400))
            ids = [f"{rng.randrange(2 * ENTRIES + 50)}-{rng.randrange(3)}" for _ in range(count)]
            if round_ == 1:
                ids.sort(key=lambda each: int(each.partition("-")[0]))
            said = many.execute_command(*words, *([len(ids)] * (words[-1] == "IDS")), *ids)
            expected = _one_by_one(single, words, ids)
            if words[0] == "XCLAIM":  # named twice it is claimed twice
                assert [row[0] for row in said] == [row[0] for row in expected]
            else:
                assert said == expected
            assert _told(many) == _told(single)
