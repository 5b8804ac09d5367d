"""Prevents wrong values from an index whose pages are damaged while a store has it open.

LMDB's pages carry no checksum. So every row ends in a CRC bound to its key, and every node is
proven by its frame: what is damaged is refused, or seems not to be there, and the latter `check`
finds. It may also end the process, which is why each run has one of its own.

`LOGSTORE_CORRUPTION=<seed>` gives the seed; it is printed. `make torture` does more.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests import figures
from tests.corruption import shop
from tests.corruption.pages import DAMAGES, META_PAGES, PAGE, Damage
from tests.corruption.shop import Shop

SEED = int(os.environ.get("LOGSTORE_CORRUPTION", "20"))
ROUNDS = figures.times()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Damaged as copies only."""
    return shop.make(tmp_path_factory.mktemp("shop") / "store", SEED)


def damaged(index: Path, damage: Damage, rng: random.Random) -> None:
    """Overwrite one to four pages in place."""
    data = next(index.glob("*/data.mdb"))
    content = bytearray(data.read_bytes())
    pages = range(META_PAGES, len(content) // PAGE)
    with data.open("r+b") as file:
        for page in rng.sample(pages, rng.choice((1, 2, 4))):
            damage(content, page * PAGE, rng)
            file.seek(page * PAGE)
            file.write(content[page * PAGE : (page + 1) * PAGE])


def run(path: Path, truth: Path, damage: Damage, rng: random.Random) -> tuple[int, str]:
    """One process with the store open while its index is damaged; exit code, what it told."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.corruption.pages", str(path), str(truth)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n", child.communicate()
        damaged(path / "index", damage, rng)
        told, errors = child.communicate("go\n", timeout=300)
    assert child.returncode <= 0, errors
    return child.returncode, told


def test_never_a_wrong_value(made: Shop, tmp_path: Path) -> None:
    print(f"\nLOGSTORE_CORRUPTION={SEED}")
    rng = random.Random(SEED)
    truth = tmp_path / "truth"
    truth.write_bytes(pickle.dumps(made))
    totals: dict[str, Counter[str]] = {}
    for kind, damage in DAMAGES.items():
        total = totals.setdefault(kind, Counter())
        for _ in range(ROUNDS):
            path = tmp_path / "store"
            shutil.copytree(made.path, path, ignore=shutil.ignore_patterns("index", "WAKE"))
            ended, told = run(path, truth, damage, rng)
            total["runs"] += 1
            if ended:
                total["processes ended"] += 1
            else:
                found = json.loads(told)
                total.update(found["seen"])
                total.update({f"absent: {k}": n for k, n in found["absences"].items()})
                total["runs with an absence"] += bool(found["absences"])
                assert not found["wrong"], (kind, found["wrong"])
                missed = any(found["seen"].get(each) for each in ("absent", "twice", "deleted"))
                if found["seen"].get("close refused"):
                    total["rebuilt by the next opener"] += 1
                    assert rebuilt(path)
                elif missed:
                    assert check(path, careful=True).damage, (kind, found)
                    total["absences found by check"] += 1
            from_the_log(made, path)
            shutil.rmtree(path)
    for kind, total in totals.items():
        print(f"{kind:22}", ", ".join(f"{name} {count:,}" for name, count in sorted(total.items())))
    every = sum(totals.values(), Counter())
    figures.record(
        "corruption of index pages under a running store", injected=every["runs"],
        wrong_values=every["wrong"], right=every["right"], refused=every["refused"],
        absent=every["absent"], processes_ended=every["processes ended"],
    )  # fmt: skip
    assert every["refused"]


def rebuilt(path: Path) -> bool:
    """Whether the next opener builds the index anew."""
    with logstore.open(path, background=False) as store:
        return bool(store.recovery["rebuilt"])


def from_the_log(made: Shop, path: Path) -> None:
    """What a damaged index answered has done no harm: built anew, everything is there."""
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False) as store:
        for name, live in made.live.items():
            found = shop.entries(store, name)
            assert {id: found.get(id) for id in live} == live, name
