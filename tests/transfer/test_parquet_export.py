"""Prevents an export to Parquet that loses, doubles or changes an entry, whenever it is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import DiskFullError, OptionError, StreamNotFoundError, UsageError
from logstore.fs import LOCAL, FileSystem
from logstore.scan import scan_columns
from logstore.transfer import export_parquet, export_parquet_file, parquet_export

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")
dataset = pytest.importorskip("pyarrow.dataset")

DAY = 86_400_000
NAMES = ("race:a", "b/ü %", "7")
Rows = dict[str, list[tuple[str, dict[str, str]]]]


def filled(path: Path, first: int = 0, count: int = 40) -> logstore.Store[bytes]:
    """Three streams over some days, in small nodes."""
    store = logstore.open(path, sync="os", node_max_entries=3)
    for name in NAMES:
        store.stream(name).add_many(
            ((at * DAY // 7 + 1, at % 3), {"temp": str(at / 2), "n": str(at), f"f{at % 2}": "ü"})
            for at in range(first, first + count)
        )
    return store


def held(store: logstore.Store[bytes]) -> Rows:
    """What the store has."""
    return {
        name.decode(): [
            (str(entry.id), {key.decode(): value.decode() for key, value in entry.pairs})
            for entry in store.stream(name)
        ]
        for name in store.streams()
    }


def exported(folder: Path) -> Rows:
    """What a reader of partitions finds; the day of every row must be its own."""
    found: Rows = {}
    if not list(folder.rglob("[!_]*.parquet")):
        return found
    partitions = dataset.partitioning(
        pa.schema([("stream", pa.string()), ("day", pa.string())]), flavor="hive"
    )
    files = dataset.dataset(folder, format="parquet", partitioning=partitions)
    for row in files.to_table().sort_by("ts").to_pylist():
        assert row["day"] == str(row["ts"].date())
        assert row["ts"] == datetime.fromtimestamp(int(row["id"].split("-")[0]) / 1000, UTC)
        name = row["stream"]
        found.setdefault(name, []).append((row["id"], dict(row["fields"])))
    return found


def test_every_entry_is_there_once_also_behind_a_resume(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    told: list[tuple[int, int]] = []
    with filled(tmp_path / "s") as store:
        report = export_parquet(
            store, folder, file_max_bytes=1, progress=lambda *now: told.append(now)
        )
        assert (report.streams, report.entries) == (3, 120)
        assert told[-1] == (120, 120)
        assert exported(folder) == held(store)
        assert export_parquet(store, folder, resume=True).as_dict() == {
            "streams": 0, "entries": 0, "files": 0,
        }  # fmt: skip
    with filled(tmp_path / "s", 40, 20) as store:
        assert export_parquet(store, folder, ["race:*"], resume=True).entries == 20
        assert export_parquet(store, folder, resume=True, end=(45 * DAY // 7 + 1, 0)).entries == 12
        assert export_parquet(store, folder, resume=True).entries == 28
        assert exported(folder) == held(store)


class Killed(BaseException):
    """The process is dead from here on."""


class Dying(FileSystem):
    """Does so many operations that change something, and then nothing more."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {"open_new", "rename", "remove", "sync_directory", "make_directory"}:
            return found

        def counted(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return found(*arguments)

        return counted


def test_a_kill_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = NAMES[0]
    with filled(tmp_path / "s", count=9) as store:
        wanted = held(store)[name]
        for steps in range(1000):
            folder = tmp_path / str(steps)
            with monkeypatch.context() as patched:
                patched.setattr(parquet_export, "LOCAL", Dying(steps))
                try:
                    export_parquet(store, folder, name)
                except Killed:
                    pass
                else:
                    break
            rows = exported(folder).get(name, [])
            assert rows == wanted[: len(rows)]
            export_parquet(store, folder, name, resume=True)
            assert exported(folder) == {name: wanted}
            assert list(folder.rglob("_*")) == []
        assert steps > 12


def test_a_full_disk_stops_it_and_it_goes_on(tmp_path: Path, small_disk: Path) -> None:
    folder, filler = small_disk / "out", small_disk / "filler"
    report = parquet_export.ParquetReport()
    with filled(tmp_path / "s") as store:
        free = os.statvfs(small_disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - 8 * 4096))
        with pytest.raises(DiskFullError):
            export_parquet(store, folder, report=report)
        assert list(folder.rglob("_*")) == []
        assert 0 < sum(map(len, exported(folder).values())) == report.entries < 120
        filler.unlink()
        export_parquet(store, folder, resume=True)
        assert exported(folder) == held(store)


def test_a_failed_export_leaves_whole_files_only(tmp_path: Path) -> None:
    """The third day has a value that is no text."""
    folder = tmp_path / "out"
    report = parquet_export.ParquetReport()
    with logstore.open(tmp_path / "s", sync="os", node_max_entries=3) as store:
        stream = store.stream("s")
        stream.add_many(((day * DAY + 5, 0), {"v": b"x"}) for day in range(6))
        stream.add({"v": b"\xff"}, id=(6 * DAY, 7))
        with pytest.raises(UsageError, match=f"v.* of {6 * DAY}-7 is no UTF-8"):
            export_parquet(store, folder, schema={"v": None}, report=report, file_max_bytes=1)
        assert list(folder.rglob("_*")) == []
        found = dataset.dataset(folder, format="parquet").to_table()
        assert found.num_rows == report.entries
        export_parquet(store, tmp_path / "bytes", schema={"v": pa.binary()})
        export_parquet(store, tmp_path / "pairs", schema={"pairs": None})
        last = dataset.dataset(tmp_path / "pairs", format="parquet").to_table().to_pylist()[-1]
        assert last["pairs"] == [{"field": "v", "value": b"\xff"}]


def test_typed_columns_and_what_is_none_of_its_type(tmp_path: Path) -> None:
    path = tmp_path / "race.parquet"
    columns = scan_columns.parse_columns('temp double, hum long, "a name" string, n decimal(4,1)')
    with logstore.open(tmp_path / "s", sync="os") as store:
        stream = store.stream("race")
        stream.add({"temp": "1.5", "hum": "7", "a name": "ü", "n": "2.5"}, id="5-1")
        stream.add({"temp": "warm", "hum": ""}, id=((1 << 64) - 1, 3))  # no day, no ts
        report = export_parquet_file(store, path, "race", schema=columns)
        assert report.as_dict() == {
            "streams": 1, "entries": 2, "files": 1, "malformed": {"temp": 1},
        }  # fmt: skip
        export_parquet(store, tmp_path / "out", schema=columns)
    first, second = pa.parquet.read_table(path).to_pylist()
    assert (first["id"], first["temp"], first["hum"], first["a name"]) == ("5-1", 1.5, 7, "ü")
    assert str(first["n"]) == "2.5"
    assert list(second.values()) == [f"{(1 << 64) - 1}-3", None, None, None, None, None]
    days = {each.parent.name for each in (tmp_path / "out").rglob("*.parquet")}
    assert days == {"day=1970-01-01", "day=__HIVE_DEFAULT_PARTITION__"}
    assert list(tmp_path.glob("_*")) == []


def drop_and_begin_again(store: logstore.Store[bytes]) -> None:
    store.drop("race:a")
    store.stream("race:a").add({"n": "1"}, id="1-1")


def name_in(raw: bytes) -> Callable[[logstore.Store[bytes]], object]:
    """Adds a stream, or an entry with a field of this name."""
    return lambda store: store.stream(raw).add({"a": "b"})


@pytest.mark.parametrize(
    ("prepare", "options", "told"),
    [
        (None, {}, "has files already"),
        (drop_and_begin_again, {"resume": True}, "it is another one"),
        (None, {"resume": True, "schema": {"n": None}}, "has other columns"),
        (None, {"schema": {"day": None}}, "in the names of the folders"),
        (None, {"schema": {"stream": None}}, "in the names of the folders"),
        (None, {"schema": {"Day": None}}, "in the names of the folders"),
        (None, {"schema": {"Name": None, "name": None}}, "'Name' and 'name' differ by case only"),
        (None, {"schema": "ID string, x string"}, "'id' and 'ID' differ by case only"),
        (name_in(b"\xff"), {"resume": True}, "no UTF-8: export it by itself"),
        (name_in(b"__HIVE_DEFAULT_PARTITION__"), {"resume": True}, "stands for none"),
        (name_in(b"%" * 90), {"resume": True}, "too long for a folder"),
        (None, {"start": "9", "end": "4"}, "is above end"),
    ],
)
def test_a_refused_export_changes_nothing(
    tmp_path: Path, prepare: Any, options: dict[str, Any], told: str
) -> None:
    folder = tmp_path / "out"
    with filled(tmp_path / "s", count=2) as store:
        export_parquet(store, folder)
        before = sorted(folder.rglob("*"))
        store.stream("race:a").add({"n": "1"})
        if prepare is not None:
            prepare(store)
        with pytest.raises(UsageError, match=told):
            export_parquet(store, folder, **options)
        assert sorted(folder.rglob("*")) == before


def test_refused_by_the_folder_or_the_stream(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with filled(tmp_path / "s", count=2) as store:
        for folder in (tmp_path / "file", tmp_path / "none" / "out"):
            with pytest.raises(UsageError, match="cannot be a folder"):
                export_parquet(store, folder)
        with pytest.raises(UsageError, match="cannot be a file"):
            export_parquet_file(store, tmp_path, "race:a")
        with pytest.raises(StreamNotFoundError):
            export_parquet_file(store, tmp_path / "x.parquet", "nobody")
        with pytest.raises(StreamNotFoundError):
            export_parquet(store, tmp_path / "out", ["nobody"])
        store.stream("odd").add({b"\xff": "1"}, id="3-4")
        with pytest.raises(UsageError, match="name of a field of 3-4"):
            export_parquet_file(store, tmp_path / "x.parquet", "odd")
        assert {each.name for each in tmp_path.iterdir()} == {"file", "s"}
        held_by = LOCAL.open(tmp_path / "s")
        assert held_by.try_lock(exclusive=True)
        with pytest.raises(UsageError, match="another export"):
            export_parquet(store, tmp_path / "s")
        held_by.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no column"), ("a,,b", "no column"), ("a int b", "no column"), ("a int, a", "twice"),
     ("a blob", "cannot be blob"), ("a decimal(40)", "cannot be"), ('"a', "no column")],
)  # fmt: skip
def test_columns_that_are_none(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        scan_columns.parse_columns(text)


def test_columns_as_text() -> None:
    found = scan_columns.parse_columns(
        'ts, temp Double,hum  long , "a ""b"", c" INT, `d``e`, f decimal( 9 , 2 ), g timestamp'
    )
    assert found == {
        "ts": None, "temp": pa.float64(), "hum": pa.int64(), 'a "b", c': pa.int32(), "d`e": None,
        "f": pa.decimal128(9, 2), "g": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
