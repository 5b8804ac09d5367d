"""Prevents a sync that really failed from being believed, or from costing what was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from logstore.recovery.check import check
from tests import figures
from tests.power import children
from tests.power.disks import why_not
from tests.power.opener import Opener
from tests.power.smalldisk import SmallDisk

FAILURES = {"CommittedError", "DiskFullError", "FileSystemError", "StoreFailedError"}
CASES = [
    ("ext4", "always", "mounted anew"),
    ("xfs", "everysec", "healed"),
    ("xfs", "always", "healed"),
    ("ext4", "everysec", "mounted anew"),
    ("xfs", "always", "mounted anew"),
    ("xfs", "everysec", "mounted anew"),
    ("ext4", "always", "healed"),  # the system may have made it read-only: then mounted anew
    ("ext4", "everysec", "healed"),
][: 3 if figures.times() == 1 else None]
COUNTED: dict[str, float | str] = {}


@pytest.fixture
def small(name: str, tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk that can fail; skips, with the reason, where it cannot be made."""
    why = why_not(name)
    if why:
        print(why)
        pytest.skip(why)
    disk = SmallDisk(tmp_path / "small", name)
    yield disk
    disk.close()


@pytest.fixture
def hands(small: SmallDisk) -> Iterator[list[Opener]]:
    """Processes on one store; gone before the disk is."""
    found = [Opener(small.at / "store") for _ in range(3)]
    yield found
    for hand in found:
        hand.end()


def write_until_it_fails(writer: Opener, first: int) -> tuple[list[int], float]:
    """Numbers acknowledged, each with when, and the first error."""
    done: list[int] = []
    began = time.monotonic()
    for number in range(first, first + 100_000):
        answer = writer("add", number)
        if answer.error:
            assert answer.error in FAILURES, answer
            return done, time.monotonic() - began
        done.append(number)
        if time.monotonic() - began > 60:
            break
        time.sleep(0.002)
    raise AssertionError("no sync failed")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy", "after"), CASES)
def test_a_sync_that_really_fails(
    small: SmallDisk, hands: list[Opener], tmp_path: Path, name: str, policy: str, after: str
) -> None:
    """Typed, known to every process, named; and what was acknowledged is there when it heals."""
    writer, other, late = hands
    writer("open", sync=policy)
    other("open", sync="os")
    for number in range(1, 101):
        assert not writer("add", number).error
    assert not writer("sync").error
    small.fail()
    acknowledged, took_s = write_until_it_fails(writer, 101)
    # Every process is told, one that only comes now as well; what is there can be read.
    refused = [hand("add", 900_000) for hand in (writer, other)]
    joined = late("open", sync=policy)
    print(joined.error, joined.said)
    if joined.error:
        assert joined.error in FAILURES
    else:
        refused.append(late("add", 900_000))
    assert {answer.error for answer in refused} == {"StoreFailedError"}, refused
    told = writer("durable")
    assert not told.error, told
    durable = told.value
    for answer in refused:
        assert (answer.segment, answer.offset) == tuple(durable)
    read = other("numbers", 100)
    assert read.value == list(range(1, 101)), read
    for hand in hands[: 2 if joined.error else 3]:
        hand("close")
    path = small.at / "store"
    # As long as it cannot be written to, opening says so, and makes nothing worse.
    again = writer("open", sync=policy)
    assert again.error in FAILURES, again
    for hand in hands:
        hand.end()
    small.heal()
    if after == "mounted anew":
        small.anew()
    fresh = Opener(path)
    hands.append(fresh)
    opened = fresh("open", sync=policy)
    if "Read-only" in opened.said:  # ext4 may have no room for its journal either
        fresh.end()
        small.anew()
        after = "mounted anew"
        fresh = Opener(path)
        hands[-1] = fresh
        opened = fresh("open", sync=policy)
    assert not opened.error, opened
    found = fresh("numbers").value
    expected = list(range(1, 101)) + acknowledged
    lost = len(expected) - len([number for number in found if number in set(expected)])
    print(f"{name} {policy}, {after}: {len(acknowledged)} acknowledged until it failed after "
          f"{took_s:.3f} s, lost {lost}; {opened.value}")  # fmt: skip
    assert found == list(range(1, len(found) + 1)), "a hole"
    assert len(found) >= 100
    if policy == "always":
        assert not lost
    # Under the other policy all since the last sync is at risk: a system may drop what it could
    # not write (xfs), or make the file system read-only, so that it has to be mounted anew (ext4).
    if after == "healed":
        assert opened.value["restated_segments"]
        risk = opened.value["at_risk"]
        assert (risk["from"]["segment"], risk["from"]["offset"]) == tuple(durable)
    assert not fresh("add", 1_000_000).error
    assert not fresh("sync").error
    assert not fresh("close").error
    assert not children.run(tmp_path, partial(_damage, path))
    _count(policy, after, lost, len(expected))


def _damage(path: Path) -> list[str]:
    return [str(each) for each in check(path).damage]


def _count(policy: str, after: str, lost: int, acknowledged: int) -> None:
    """Keep the sums of all cases."""
    key = f"lost_{policy}_{after.replace(' ', '_')}"
    COUNTED["syncs_failed"] = int(COUNTED.get("syncs_failed", 0)) + 1
    COUNTED["acknowledged"] = int(COUNTED.get("acknowledged", 0)) + acknowledged
    COUNTED[key] = int(COUNTED.get(key, 0)) + lost
    figures.record("failing_fsync", **COUNTED)
