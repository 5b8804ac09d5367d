"""Prevents wrong values, or bare errors, from a store whose files are damaged while it is open."""

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
from logstore.engine.shm.commit_words import MAGIC, SIZE_BYTES, Wake
from logstore.errors import CorruptFrameError, StoreError
from logstore.fs import LOCAL
from logstore.log import file_names
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


CHECK = """
import sys
from pathlib import Path
import logstore
from logstore.recovery.check import check
try:
    print("damaged" if check(Path(sys.argv[1])).damage else "sound")
except logstore.Error as exc:
    print("refused", exc)
"""


def test_check_of_a_damaged_index(tmp_path: Path) -> None:
    """Whatever LMDB meets in it is told as damage. It may end the process: hence one for each."""
    made = shop.make(tmp_path / "store", 3)
    data = next((made.path / "index").glob("*/data.mdb"))
    whole, was = data.read_bytes(), data.stat()
    rng, told = random.Random(3), Counter[str]()
    for damage in list(DAMAGES.values()) * 2:
        content = bytearray(whole)
        for page in rng.sample(range(META_PAGES, len(content) // PAGE), 3):
            damage(content, page * PAGE, rng)
        with data.open("r+b") as file:
            file.write(content)
        os.utime(data, ns=(was.st_atime_ns, was.st_mtime_ns))  # or the index would not be looked at
        done = subprocess.run(
            [sys.executable, "-c", CHECK, str(made.path)], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode <= 0, done.stderr
        told["ended" if done.returncode else done.stdout.split()[0]] += 1
    print(dict(told))
    assert told["damaged"] >= 5


def test_a_sealed_segment_without_a_byte(tmp_path: Path) -> None:
    """Its nodes are damaged; those of other segments are read on."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, background=False, encoding=None) as store:
        for name in (b"first", b"second"):
            store.stream(name).add_many({b"pad": b"p" * 300} for _ in range(400))
    was = file_names.segment(path, 1).stat()
    file_names.segment(path, 1).write_bytes(b"")
    os.utime(file_names.segment(path, 1), ns=(was.st_atime_ns, was.st_mtime_ns))
    with logstore.open(path, background=False, encoding=None) as store:
        with pytest.raises(CorruptFrameError, match="cut off") as caught:
            list(store.stream(b"first"))
        assert caught.value.segment == 1
        assert len(list(store.stream(b"second"))) == 400


@pytest.mark.parametrize("size", [0, 1, SIZE_BYTES - 3, SIZE_BYTES + 3, SIZE_BYTES + 8])
def test_wake_of_another_length(tmp_path: Path, size: int) -> None:
    """Who is the first makes it anew; who meets it in use is told."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"n": 1})
    (path / file_names.WAKE).write_bytes(MAGIC + bytes(max(0, size - len(MAGIC))))
    os.truncate(path / file_names.WAKE, size)
    with pytest.raises(StoreError, match=f"has {size} bytes"):
        Wake(LOCAL, path / file_names.WAKE)
    with logstore.open(path, background=False) as store:
        assert len(store.stream("s")) == 1
        assert (path / file_names.WAKE).stat().st_size == SIZE_BYTES
    (path / file_names.WAKE).write_bytes(MAGIC + bytes(max(0, size - len(MAGIC))))
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 1
