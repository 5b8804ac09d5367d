"""Prevents a call that fails, at any step of any operation, from losing or halving a commit.

Each trial fails one system call, or one call of LMDB, of a script: the k-th. In continuous
integration some are drawn, in torture every k fails in every way that such a call knows.
``LOGSTORE_FAULTS=<seed>`` draws the same again, ``LOGSTORE_FAULTS=<script>/<k>/<n>`` is one trial
alone (n: which of the ways, or ``full``).
"""

from __future__ import annotations

import gc
import logging
import os
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import CommittedError
from tests import figures, seeds
from tests.crash.states import groupscripts, recoveries, scripts
from tests.crash.states.workload import Workload
from tests.faults.layer import KINDS, NEED_SPACE, Faults, faulty
from tests.faults.trial import Beginning, Clean, Outcome, Trial, clean

GIVEN = os.environ.get("LOGSTORE_FAULTS", "")
SEED = GIVEN if GIVEN and "/" not in GIVEN else str(seeds.seed())
ALL = figures.times() >= 20
WORKLOADS = (*scripts.WORKLOADS, *groupscripts.WORKLOADS)
# The others' beginnings are found by exploring crash states, which takes its time.
QUICK = ("upgrade", "recovery after a failed sync")
BEGUN = tuple(
    each for each in recoveries.WORKLOADS
    if figures.times() > 1 or "/" in GIVEN or each.name in QUICK
)  # fmt: skip
SAMPLES = 12  # of each script, in continuous integration
MEMORY = Path("/dev/shm")
FULL = "full"
MISSED_MOST = 0.02  # one run makes a call more or less than another


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    """What became of all trials of this run, printed at its end."""
    found = Outcome()
    started_s = time.monotonic()
    yield found
    print(f"\nLOGSTORE_FAULTS={SEED}, in {time.monotonic() - started_s:.0f} s\n{found.table()}")
    # How often files and locks are looked at depends on the time that has passed: of a few trials,
    # as of one test that runs alone, some may miss their call on a busy machine.
    assert found.missed <= MISSED_MOST * found.injected + 4
    if found.injected and not found.broken and "/" not in GIVEN:
        figures.record(
            "faults", injected=found.injected, typed=found.typed, raw=0, retried=found.again,
            store_failed=found.failed, survived=found.survived, acknowledged_lost=0, half_there=0,
            kinds=", ".join(f"{name} {count}" for name, count in sorted(found.by_kind.items())),
        )  # fmt: skip


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """In memory, if there is room."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    found = Path(tempfile.mkdtemp(prefix="logstore-faults-", dir=MEMORY))
    yield found
    shutil.rmtree(found)


def drawn(run: Clean) -> list[tuple[int, int | None]]:
    """Which call fails, and in which of its ways; None: it and all that need space behind it."""
    name = run.beginning.workload.name
    if "/" in GIVEN:
        wanted, at, nth = GIVEN.rsplit("/", 2)
        return [(int(at), None if nth == FULL else int(nth))] if wanted == name else []
    by_call: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for at, call in enumerate(run.met, 1):
        by_call[call] += [(at, nth) for nth in range(len(KINDS[call]))]
        if call in NEED_SPACE:
            by_call[FULL].append((at, None))
    if ALL:
        return [each for some in by_call.values() for each in some]
    rng = random.Random(f"{SEED} {name}")
    # Every kind of call gets its turn over the scripts, those with more ways to fail more often.
    calls = sorted(by_call)
    weights = [1 if call == "close" else 4 if call == FULL else 2 for call in calls]
    return [
        rng.choice(by_call[call])
        for call in rng.choices(calls, weights, k=SAMPLES * figures.times())
    ]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("workload", [*WORKLOADS, *BEGUN], ids=lambda workload: workload.name)
def test_one_call_fails(workload: Workload, outcome: Outcome, scratch: Path) -> None:
    """Typed, told, whole; the same handle goes on; opened again, and rebuilt, it is whole."""
    logging.getLogger("logstore").setLevel(logging.CRITICAL)
    try:
        beginning = Beginning(workload, scratch)
        with faulty() as faults:
            clean(beginning, scratch, faults)  # what is kept for a process is looked up now
            run = clean(beginning, scratch, faults)
            for number, (at, nth) in enumerate(drawn(run)):
                _try(Trial(run, faults, at, nth, outcome), scratch / str(number), faults)
                if number % 50 == 49:  # an error may hold an index, a TiB of addresses each
                    gc.collect()
    finally:
        logging.getLogger("logstore").setLevel(logging.NOTSET)


def _try(trial: Trial, path: Path, faults: Faults) -> None:
    try:
        trial.judge(path)
    except BaseException as exc:
        faults.counting = False
        trial.outcome.broken += 1
        exc.add_note(f"LOGSTORE_FAULTS={trial.name!r} does it again; {faults.hits}")
        raise


def test_a_lock_that_fails_says_whether_a_schema_counts(scratch: Path) -> None:
    """A schema is decided in rounds, of which the last one commits: an error of an earlier one said
    that the commit counts."""

    def configured(at: int) -> tuple[int, BaseException | None, str | None]:
        with faulty() as faults, logstore.open(scratch / str(at), background=False) as store:
            store.stream("s").add({"v": "1"})
            faults.only, faults.at, faults.counting = "lock", at, True
            try:
                store.stream("s").configure(schema="v binary")
            except logstore.Error as exc:
                error: BaseException | None = exc
            else:
                error = None
            faults.counting = False
            schema = store.stream("s").schema
            return len(faults.met), error, None if schema is None else str(schema)

    locks, error, schema = configured(0)
    assert (error, schema) == (None, "v binary")
    assert locks >= 4  # of two rounds at least
    counted = 0
    for at in range(1, locks + 1):
        _, error, schema = configured(at)
        assert error is not None
        assert isinstance(error, CommittedError) == (schema is not None), error
        counted += schema is not None
    assert counted == 1
