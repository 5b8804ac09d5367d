"""Prevents a salvage from leaving anything behind of a store in which nothing is wrong: whatever it
copies at once, of each kind, and with what it tells of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.errors import OptionError
from logstore.recovery.check import check
from logstore.recovery.salvage import run as salvaging
from logstore.recovery.salvage.run import SalvageReport, salvage
from tests.corruption import shop
from tests.corruption.shop import FAR_MS, Shop

PARTS = ("live", "infos", "settings", "scheduled")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A store with a bit of everything; closed cleanly, and never opened again."""
    path = tmp_path_factory.mktemp("out") / "store"
    found = Shop(path)
    with logstore.open(path, node_max_entries=8, background=False) as store:
        long = store.stream("long")
        long.add_many([[(b"n", b"%d" % n)] for n in range(1, 101)])
        long.delete(*(entry.id for entry in list(long)[::7]))
        group = long.group("readers")
        group.create(start="0")
        group.configure(max_deliveries=7, dead_letter="dead")
        group.read("ann", count=5)
        long.group("others").create(start="$")
        for n in range(5):
            store.stream("later").schedule([(b"n", b"%d" % n)], at=FAR_MS + n)
        store.stream("later").schedule([(b"n", b"5")], every=9e6, name="again")
        store.stream("short").add([(b"n", b"1")], id="1-0")
        store.stream("short").configure(max_entries=1000)
        store.stream("short").expire(at=FAR_MS)
        store.create("empty")
        store.stream("once").add([(b"n", b"1")], producer="p", idempotent_id="one")
        shop.look(store, found)
    return found


def _kept(path: Path) -> list[object]:
    """What is set for groups and streams beside settings, and what repeats."""
    with logstore.open(path, background=False) as store:
        groups = [store.stream("long").group(name).settings for name in ("readers", "others")]
        again = [(each.name, each.every, each.due) for each in store.stream("later").scheduled()]
        return [*groups, again, *(store.stream(name).expires_at for name in store.streams())]


@pytest.mark.parametrize(
    ("piece_bytes", "scheduled"), [(1, 1), (150, 2), (400, 5), (1 << 20, 1000)]
)
def test_all_of_it_is_there(
    made: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, scheduled: int
) -> None:
    path = shutil.copytree(made.path, tmp_path / "store")
    kept = _kept(path)
    assert sum(each is not None for each in kept) == 4
    assert "7" in str(kept[0])
    monkeypatch.setattr(salvaging, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(salvaging, "SCHEDULED_A_COMMIT", scheduled)
    told: list[tuple[int, int]] = []
    report = salvage(made.path, tmp_path / "new", progress=lambda *each: told.append(each))
    assert report.whole
    assert (report.index, report.destination) == ("its own", str(tmp_path / "new"))
    assert (report.damage, report.gone, report.unsure) == ([], [], [])
    assert report.streams == len(made.live) == 5
    assert report.entries == sum(map(len, made.live.values()))
    assert (report.groups, report.pending, report.scheduled) == (2, 5, 6)
    found = Shop(tmp_path / "new")
    with logstore.open(tmp_path / "new", background=False) as store:
        shop.look(store, found)
    for part in PARTS:
        assert getattr(found, part) == getattr(made, part), part
    assert _kept(tmp_path / "new") == kept
    assert check(tmp_path / "new").as_dict()["clean"]
    assert told == sorted(told)
    assert told[-1][0] <= told[-1][1]


def test_where_it_may_not_go(made: Shop, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    with pytest.raises(OptionError, match="is not empty"):
        salvage(made.path, tmp_path / "full")
    for inside in (made.path / "new", made.path / "log" / ".." / "new"):
        with pytest.raises(OptionError, match="in the damaged store itself"):
            salvage(made.path, inside)
    beside = made.path.with_name(made.path.name + "-new")
    assert salvage(made.path, beside).whole
    shutil.rmtree(beside)


def test_what_a_report_says(made: Shop, tmp_path: Path) -> None:
    told = salvage(made.path, tmp_path / "new").as_dict()
    assert told["whole"] is True
    assert (told["gone"], told["damage"], told["streams"]) == ([], [], 5)
    empty = SalvageReport()
    assert empty.whole
    assert not any(value for name, value in empty.as_dict().items() if name != "whole")
    assert not SalvageReport(unsure=["one"]).whole
