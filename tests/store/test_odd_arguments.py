"""Prevents bare errors, and engines that differ, for arguments that nobody should give."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import OptionError
from logstore.api.store import Store
from tests.store import odd
from tests.support.inside import FixedClock
from tests.support.parameters import parameters

MAX = 2**63 - 1
HINT = "see what it is, then write it: python -m tests.store.odd"


def test_every_odd_argument_has_the_outcome_that_is_pinned(tmp_path: Path) -> None:
    """The same file is compared, by `make test-pure`, where nothing is compiled."""
    found = odd.lines(tmp_path / "store")
    assert [each for each in found if "BARE" in each or "AND CHANGED" in each] == []
    assert found == odd.PINNED.read_text(encoding="utf-8").splitlines(), HINT


def test_no_method_that_takes_arguments_is_left_out() -> None:
    known = {f"{face.__name__}.{method}" for face, method, _ in odd.cases()}
    missing = [
        f"{face.__name__}.{name}"
        for face in odd.FACES
        for name, method in inspect.getmembers(face, inspect.isfunction)
        if not name.startswith("_") and f"{face.__name__}.{name}" not in known
        and parameters(method)
    ]  # fmt: skip
    # A path, the IDs of pins, a field's name, as of any mapping, and of rows of Arrow what
    # tests/scan and test_add_arrow look at.
    scans = {"Store.merge", "Store.moment", "Store.scan", "Stream.add_arrow", "Stream.scan"}
    assert [name for name in missing if name not in scans] == [
        "Store.backup",
        "Store.release_pins",
        "Store.ship",
        "Delivery.get",
    ]


OPENED = [
    name for name in parameters(logstore.open)
    if name not in {"path", "clock", "compact_rate"}
]  # fmt: skip


@pytest.mark.parametrize("name", [*OPENED, "compact_rate"])
def test_odd_options_of_open(tmp_path: Path, name: str) -> None:
    refused: set[type] = set()
    for place, value in enumerate(odd.ODD.values()):
        path = tmp_path / str(place)
        try:
            with logstore.open(path, **{"background": False, name: value}):
                continue
        except logstore.Error as error:
            refused.add(type(error))
        assert not path.exists()
    # Who only reads makes no store.
    allowed = {OptionError, logstore.NotAStoreError} if name == "readonly" else {OptionError}
    assert refused == allowed


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5], ids=repr)
def test_what_is_no_path(tmp_path: Path, value: Any) -> None:
    with pytest.raises(OptionError, match="path"):
        logstore.open(value)
    with (
        logstore.open(tmp_path / "store", background=False) as store,
        pytest.raises(OptionError, match="path"),
    ):
        store.backup(value)


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5, ""], ids=repr)
def test_what_is_no_uri(tmp_path: Path, value: Any) -> None:
    with (
        logstore.open(tmp_path / "store", background=False) as store,
        pytest.raises(OptionError, match="uri must be a URI or a path"),
    ):
        store.ship(value)


TOLD = [-1, 2**63, 2**64, 253_402_300_800_000, None, "0", 1.5, True, float("nan")]


@pytest.mark.parametrize("told", TOLD, ids=repr)
def test_a_clock_that_tells_no_time_is_an_error_of_ours(tmp_path: Path, told: Any) -> None:
    clock: Any = FixedClock(odd.NOW_MS)
    with logstore.open(tmp_path / "store", sync="os", background=False, clock=clock) as store:
        stream = store.stream("s")
        group = stream.group("g", "0")
        first = stream.add({"a": "b"})
        group.read("c")
        clock.ms = told
        for call in (
            lambda: stream.add({"a": "b"}), lambda: stream.delete(first), lambda: group.read("c"),
            lambda: group.claim("d", first, min_idle=0), group.consumers,
            lambda: list(group.pending_entries()), lambda: stream.expire(after=1),
            lambda: stream.schedule({"a": "b"}, after=1),
            lambda: stream.trim(max_age=1), lambda: store.drop("s"), stream.info_full,
        ):  # fmt: skip
            with pytest.raises(OptionError, match=r"clock\.now_ms\(\) must give"):
                call()
        clock.ms = 253_402_300_799_999  # the last that is taken
        stream.add({"a": "b"}, id="*")
        assert group.claim("d", first, min_idle=0)[0].idle.days > 2_000_000
        assert [each.idle.days for each in group.consumers()] == [2_913_221, 0]
        assert len(stream) == 2


def test_two_handles_with_one_clock_share_the_store(tmp_path: Path) -> None:
    clock = FixedClock(5)
    with (
        logstore.open(tmp_path / "store", background=False, clock=clock) as one,
        logstore.open(tmp_path / "store", background=False, clock=clock) as two,
    ):
        assert one._live() is two._live()
        with pytest.raises(OptionError):
            logstore.open(tmp_path / "store", background=False, clock=FixedClock(6))


def test_a_wait_of_more_than_a_life_is_for_ever(open_store: Any) -> None:
    stream = open_store().stream("s")
    stream.add({"a": "b"}, "1-0")
    for timeout in (1e308, float("inf"), 10**5000):
        assert len(stream.read("0", timeout=timeout)) == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_counts_at_their_limit_stop_no_add(tmp_path: Path, reopened: bool) -> None:
    """They go on as servers count them: in 64 bits."""

    def opened() -> Store[bytes]:
        return logstore.open(tmp_path / "store", sync="os", background=False)

    store = opened()
    stream = store.stream("s")
    stream.add({"n": 0}, "1-0")
    for wrong in (MAX + 1, 2**64 - 1, 2**64, -1):
        with pytest.raises(OptionError, match="entries_added must"):
            stream.set_id("1-0", entries_added=wrong)
    stream.set_id("1-0", entries_added=MAX)
    group = stream.group("g", "0", entries_read=MAX)
    for count in (1, 150, 1, 5):  # the open node, new nodes
        if reopened:
            store.close()
            store = opened()
            stream = store.stream("s")
            group = stream.group("g")
        stream.add_many([{"n": each} for each in range(count)])
        stream.group(f"g{count}", "$").read("c")
        assert len(group.read("c")) >= count
        assert group.info().lag == 0
    assert stream.info().entries_added == MAX + 157
    assert group.info().entries_read == -(2**63) + 156
    copied = store.restore("t", stream.dump())
    assert copied.info().entries_added == MAX + 157
    assert store.copy("s", "u")
    copied.add({"n": 1})
    assert copied.info().entries_added == MAX + 158
    assert len(list(copied)) == 159
    store.close()
