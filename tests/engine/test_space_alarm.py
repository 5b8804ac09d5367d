"""Prevents a disk that gets full without a word, and a log that is full of such words."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.engine.runtime import disk_space
from logstore.engine.runtime.disk_space import AGAIN_S, LOOK_S, SpaceAlarm
from logstore.errors import OptionError
from tests.support.waits import eventually

MIB, GIB = 1 << 20, 1 << 30


def test_the_thread_in_the_background_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with logstore.open(tmp_path / "s", low_space_bytes=(1 << 63) - 1) as store:
        eventually(lambda: "are free on its disk" in caplog.text)
        store.stream("s").add({"a": "b"})  # it is a warning, no refusal
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "s") in caplog.text


def test_low_space_is_told_at_once_each_hour_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now_s, free = 0.0, 2 * GIB
    with logstore.open(tmp_path / "s", background=False, low_space_bytes=GIB) as store:
        alarm = SpaceAlarm(
            opened_of(store).engine(), lambda _path: (free, 100 * GIB), lambda: now_s
        )

        def told() -> int:
            nonlocal now_s
            caplog.clear()
            alarm.tick()
            now_s += LOOK_S
            return len(caplog.records)

        assert told() == 0
        free = GIB - 1
        assert told() == 1
        assert "only 1023 MiB are free" in caplog.text
        assert [told() for _ in range(int(AGAIN_S / LOOK_S) - 1)] == [0] * 119
        assert told() == 1
        free = GIB + 1
        assert told() == 0  # a little more: not yet
        free = 2 * GIB
        assert told() == 1
        assert "free on its disk again" in caplog.text
        assert told() == 0
        free = GIB - 1
        alarm.tick()
        looked_s = now_s - 1
        now_s, free = looked_s, 2 * GIB  # no look before its time
        caplog.clear()
        alarm.tick()
        assert caplog.text == ""


@pytest.mark.parametrize(
    ("asked", "disk", "needed"),
    [(None, 100 * GIB, 5 * GIB), (None, 1000 * GIB, 10 * GIB), (None, GIB, 128 * MIB), (7, GIB, 7)],
)
def test_the_bounds_of_low_space(tmp_path: Path, asked: int | None, disk: int, needed: int) -> None:
    with logstore.open(tmp_path / "s", background=False, low_space_bytes=asked) as store:
        engine = opened_of(store).engine()
        assert disk_space.needed_bytes(engine, disk) == needed
        assert disk_space.is_low(engine, needed - 1, disk)
        assert not disk_space.is_low(engine, needed, disk)
        assert not disk_space.is_low(engine, 0, 0)  # the system does not tell


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "5", 1 << 63])
def test_an_invalid_low_space_bytes_is_refused(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(OptionError, match="low_space_bytes must be 0"):
        logstore.open(tmp_path / "s", low_space_bytes=wrong)
    assert not (tmp_path / "s").exists()
