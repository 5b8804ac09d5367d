"""Prevents settings that a crash loses, that outlive what they belong to, or that are wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import GroupSettings, OptionError, StreamSettings
from logstore.errors import CorruptFrameError
from logstore.features.setting_rows import Setting
from logstore.format import Kind
from logstore.log import frame
from logstore.recovery.check import check
from tests.support.inside import delete_index

FULL = StreamSettings(86_400_000, 1_000, 1 << 20, 60, 500)


def fill(path: Path) -> None:
    """A store with settings, some of which ended with what they belonged to."""
    with logstore.open(path, encoding="utf-8") as store:
        stream = store.stream("a")
        stream.configure(
            max_age=timedelta(days=1), max_entries=1_000, max_bytes=1 << 20,
            idempotent_duration=60, idempotent_max_ids=500,
        )  # fmt: skip
        stream.add({"n": "1"})
        stream.group("g", start="0").configure(max_deliveries=5, dead_letter="dead", min_idle=30)
        for name in ("b", "c"):
            store.stream(name).configure(max_entries=1)
            store.stream(name).group("g", start="0").configure(min_idle=1)
        store.drop("b")
        store.stream("b").group("g", start="0")
        store.stream("c").configure(max_entries=None)
        gone = store.stream("c").group("g")
        gone.destroy()
        gone.create("0")


def expect(path: Path) -> None:
    """What is left of them."""
    with logstore.open(path, encoding="utf-8") as store:
        assert store.stream("a").settings == FULL
        group = store.stream("a").group("g")
        assert group.settings == GroupSettings(5, "dead", 30_000)
        assert store.stream("a").info().settings == FULL
        assert group.info().settings == group.settings
        for name in ("b", "c"):
            assert store.stream(name).settings == StreamSettings()
            assert store.stream(name).group("g").settings == GroupSettings()
        assert store.stream("missing").settings == StreamSettings()


def reopened(_: Path) -> None:
    """Only closed and opened."""


def checkpointed(path: Path) -> None:
    """A checkpoint is taken, one more setting changed and changed back, and the index lost."""
    with logstore.open(path, encoding="utf-8") as store:
        store.checkpoint()
        store.stream("a").configure(max_entries=7)
        store.stream("c").configure(max_bytes=7)
        store.stream("a").configure(max_entries=1_000)
        store.stream("c").configure(max_bytes=None)
    delete_index(path)


def compacted(path: Path) -> None:
    """Every operation frame is dropped: only checkpoints hold the settings."""
    with logstore.open(path) as store:
        store.compact(purge=True)
        store.checkpoint()
    delete_index(path)


@pytest.mark.parametrize("between", [reopened, delete_index, checkpointed, compacted])
def test_settings_survive(tmp_path: Path, between: Callable[[Path], None]) -> None:
    path = tmp_path / "store"
    fill(path)
    between(path)
    expect(path)
    report = check(path)
    assert not report.damage, report.damage


def test_omitted_settings_stay_and_none_removes_one(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("s")
        assert stream.configure(max_entries=5).max_entries == 5
        after = stream.configure(max_age=1.5)
        assert (after.max_entries, after.max_age) == (5, timedelta(seconds=1.5))
        assert stream.configure(max_entries=None) == StreamSettings(max_age_ms=1500)
        before = store.durable_upto, store.info().applied_offset
        stream.configure(max_age=1.5)  # as it is: nothing is written
        assert store.info().applied_offset == before[1]
        group = stream.group("g", start="0")
        group.configure(max_deliveries=3, dead_letter="dead")
        assert group.configure(min_idle=2).max_deliveries == 3
        assert group.configure(max_deliveries=None, dead_letter=None).dead_letter is None
        assert group.settings.min_idle == timedelta(seconds=2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_age": -1}, "max_age must be a length of time"),
        ({"max_entries": -1}, "max_entries must be 0"),
        ({"max_bytes": True}, "max_bytes must be an integer"),
        ({"max_bytes": 1 << 63}, "max_bytes must be 0 to"),
        ({"idempotent_duration": 0}, "idempotent_duration must be 1 to 86400"),
        ({"idempotent_duration": 1.5}, "whole seconds"),
        ({"idempotent_duration": timedelta(days=2)}, "idempotent_duration must be 1 to 86400"),
        ({"idempotent_max_ids": 10_001}, "idempotent_max_ids must be 1 to 10000"),
        ({"idempotent_max_ids": None}, "idempotent_max_ids must be an integer"),
    ],
)
def test_wrong_settings_of_a_stream(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    with logstore.open(tmp_path / "store") as store:
        with pytest.raises(OptionError, match=told):
            store.stream("s").configure(**settings)
        assert "s" not in store
        with pytest.raises(logstore.StreamNotFoundError):
            store.stream("s").configure(max_entries=1, create=False)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_deliveries": 3}, "both, or neither"),
        ({"dead_letter": "x"}, "both, or neither"),
        ({"max_deliveries": 0, "dead_letter": "x"}, "max_deliveries must be 1"),
        ({"max_deliveries": 3, "dead_letter": "s"}, "another stream"),
        ({"max_deliveries": 3, "dead_letter": 5}, "name of a stream"),
        ({"min_idle": 0}, "min_idle must be 1"),
        ({"backoff": 1}, "give min_idle with backoff"),
    ],
)
def test_wrong_settings_of_a_group(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    with logstore.open(tmp_path / "store") as store:
        group = store.stream("s").group("g", start="0")
        with pytest.raises(OptionError, match=told):
            group.configure(**settings)
        assert group.settings == GroupSettings()
        with pytest.raises(logstore.GroupNotFoundError, match=r"make it with stream\.group\(name"):
            store.stream("s").group("none").configure(min_idle=1)


def test_settings_are_told_as_json(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    with logstore.open(tmp_path / "store") as store:
        told = json.loads(json.dumps(store.stream("a").info().as_dict()))["settings"]
        assert told["max-age-ms"] == 86_400_000
        assert told["max-bytes"] == 1 << 20
        of_group = store.stream("a").group("g").info().as_dict()["settings"]
        assert of_group == {
            "max-deliveries": 5, "dead-letter": "dead", "min-idle-ms": 30_000,
            "backoff-ms": None, "backoff-max-ms": 3_600_000,
        }  # fmt: skip


def test_a_frame_of_settings_goes_round() -> None:
    body = Setting(7, 9, {"max_age_ms": 5, "dead_letter": b"\xff"})
    assert frame.decode(Kind.SETTING, frame.encode(body)) == body


@pytest.mark.parametrize("payload", [b"", b"\x00" * 15, b"\x00" * 16, b"\x00" * 16 + b"\x01"])
def test_a_frame_that_holds_no_settings_is_refused(payload: bytes) -> None:
    with pytest.raises(CorruptFrameError):
        frame.decode(Kind.SETTING, payload)


def test_a_map_that_goes_on_is_refused() -> None:
    good = frame.encode(Setting(7, 0, {"max_entries": 1}))
    with pytest.raises(CorruptFrameError):
        frame.decode(Kind.SETTING, good + struct.pack("B", 1))
