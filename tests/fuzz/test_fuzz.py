"""Prevents strangers' bytes from doing more than a typed error: every fuzz target, with a small
budget and the same mutations each time. LOGSTORE_TORTURE=n tries n times as many, others each time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from logstore.codec import native_or_none
from tests.figures import TORTURE, record, times
from tests.fuzz import payloads, replies
from tests.fuzz.corpus import GOLDEN, TARGETS, harness, inputs, mutations
from tests.house.repo import ROOT

TRIES = {
    "acl": 2000, "batches": 2000, "files": 800, "frames": 8000, "globs": 8000, "indexpages": 12,
    "inline": 8000, "lines": 4000, "lzf": 8000, "nodes": 400, "payloads": 1000, "replies": 80,
    "requests": 1500, "rows": 8000,
    "storefiles": 4000,
}  # fmt: skip
SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or (
    random.getrandbits(32) if TORTURE in os.environ else 20260901
)


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """What a target keeps open is closed behind the last: other tests count open stores."""
    yield
    payloads.close()
    replies.close()


@pytest.mark.parametrize("target", TARGETS)
def test_sound_and_golden_inputs(target: str) -> None:
    for data in inputs(target):
        harness(target).one(data)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.timeout(900 if times() == 1 else 3600)
def test_mutations(target: str) -> None:
    print(f"seed {SEED}: LOGSTORE_SEED={SEED} tries the same")
    tries = TRIES[target] * times()
    for data in mutations(inputs(target), SEED, tries):
        try:
            harness(target).one(data)
        except Exception as error:
            error.add_note(f"target {target}, input {data.hex()}")
            raise
    record(f"fuzz {target}", inputs=tries, findings=0)


def test_golden_inputs_belong_to_a_target() -> None:
    assert {path.name for path in GOLDEN.iterdir()} <= {f"{target}.hex" for target in TARGETS}


def test_guided_by_coverage() -> None:
    pytest.importorskip("atheris", reason="the extra fuzz is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "lzf", "--seconds", "2"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stat::number_of_executed_units" in done.stderr


def test_fast_without_guidance() -> None:
    if native_or_none is None:
        pytest.skip("the compiled codec is not there")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fast", "--seconds", "1", "--seed", str(SEED)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].endswith(" inputs")
