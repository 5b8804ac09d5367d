"""Prevents an index that differs from the log in one row, of any kind, from being called right.

Each row is changed in a copy of the index, so that its checksum fits; both who reads it beside a
replayed one (`compare`) and who reads it alone (`probe`, as far as rows tell of each other) must
say what is wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore.features import schedule_rows
from logstore.features.idempotent_ids import ProducerRows
from logstore.features.schedule_rows import ScheduleRows
from logstore.features.setting_rows import OF_STREAM, SettingRows
from logstore.features.ttl_rows import ExpiryRows
from logstore.fs import FileSystem
from logstore.index.env import Generation, open_generation, open_untouched
from logstore.index.group_keys import idle_key, name_key
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.recovery import compare
from tests.corruption import shop

Change = Callable[[IndexTxn], object]


def _record(index: IndexTxn, name: bytes) -> StreamRecord:
    record = index.record_by_name(name)
    assert record is not None
    return record


def _node(index: IndexTxn, change: str) -> None:
    stream = _record(index, b"bulk").number
    master, locator = next(iter(index.nodes(stream)))
    if change == "gone":
        index.delete_node(stream, master)
    else:
        index.put_node(stream, master, locator._replace(entries=locator.entries + 1))


def _group(index: IndexTxn, **change: int) -> None:
    (group,) = index.groups.all_groups()
    for name, value in change.items():
        setattr(group, name, value)
    index.groups.put_group(group)


def _consumer(index: IndexTxn, *, gone: bool) -> None:
    (group,) = index.groups.all_groups()
    consumer = index.groups.consumers(group.number)[0]
    if gone:
        index.groups.delete_consumer(group.number, consumer)
    else:
        consumer.pending += 1
        index.groups.put_consumer(group.number, consumer)


def _pending(index: IndexTxn) -> None:
    (group,) = index.groups.all_groups()
    run = next(iter(index.groups.runs(group.number)))
    run.remove(run.first, 0, b"\xff" * 16, {})
    index.groups.put_run(group.number, run)


def _idle(index: IndexTxn) -> None:
    (group,) = index.groups.all_groups()
    oldest, first = next(iter(index.groups.idle(group.number)))
    index.groups._delete(idle_key(group.number, oldest, first))


def _group_name(index: IndexTxn) -> None:
    (group,) = index.groups.all_groups()
    index.groups._delete(name_key(group.stream, group.name))


def _length(index: IndexTxn) -> None:
    record = _record(index, b"busy")
    record.length += 1
    index.put_changes([record], [])


def _expiry(index: IndexTxn) -> None:
    ExpiryRows(index).delete(_record(index, b"quiet"))


def _schedule(index: IndexTxn) -> None:
    (row,) = ScheduleRows(index).due()
    ScheduleRows(index).delete(row.stream, (row.due_ms, row.number))


def _due_row(index: IndexTxn) -> None:
    """One of its two rows, and its count stays."""
    (row,) = ScheduleRows(index).due()
    schedules = ScheduleRows(index)
    key = schedule_rows._DUE.pack(schedule_rows._BY_DUE, row.due_ms, row.number)
    schedules._txn.delete(key, db=schedules._database)


def _forgotten(index: IndexTxn) -> None:
    stream = _record(index, b"once").number
    first = next(iter(ProducerRows(index).by_age(stream)))
    ProducerRows(index).forget(stream, first, first)


def _tally(index: IndexTxn) -> None:
    ProducerRows(index).set_counts(_record(index, b"once").number, 99, 98)


def _moved(index: IndexTxn) -> None:
    index.put_meta(index.meta()._replace(applied=index.meta().applied + 1))


# What is changed, what compare must say, what probe must say (None: the rows fit together).
CHANGES: dict[str, tuple[Change, str, str | None]] = {
    "position": (_moved, "another position", None),
    "length": (_length, "stream b'busy' is missing or differs", "b'busy' has"),
    "record": (
        lambda index: index.delete_record(_record(index, b"empty").number),
        "stream b'empty' is missing", None,
    ),
    "name": (
        lambda index: index.delete_name(b"busy", _record(index, b"busy").number),
        "the name b'busy' is missing", "the name b'busy' is missing",
    ),
    "node gone": (lambda index: _node(index, "gone"), "node", "b'bulk' has"),
    "node": (lambda index: _node(index, "live"), "node", "b'bulk' has"),
    "group": (lambda index: _group(index, entries_read=3), "group b'workers' is missing", None),
    "pending": (lambda index: _group(index, pending=3), "group b'workers'", "pending entries or"),
    "consumers": (lambda index: _group(index, consumers=9), "group b'workers'", "or consumers"),
    "consumer gone": (lambda index: _consumer(index, gone=True), "consumers of", "or consumers"),
    "consumer": (lambda index: _consumer(index, gone=False), "consumers of group", None),
    "pending entry": (_pending, "pending entries of group", "pending entries or"),
    "name of a group": (
        _group_name, "the name of group b'workers' is missing",
        "the name of group b'workers' is missing",
    ),
    "idle": (_idle, "the idle index of group", "the idle index of group"),
    "settings": (
        lambda index: SettingRows(index).delete(OF_STREAM, _record(index, b"single").number),
        "settings differ", None,
    ),
    "expiry": (_expiry, "expire differs", None),
    "scheduled": (_schedule, "scheduled entries differ", None),
    "due": (_due_row, "scheduled entries differ", "scheduled entries are missing"),
    "what is remembered": (_forgotten, "what is remembered of idempotent adds differs", None),
    "counts of producers": (_tally, "counts of idempotent adds differ", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an index with rows of every kind."""
    store = tmp_path_factory.mktemp("compare") / "store"
    shop.make(store, 5)
    return file_names.generation(store, file_names.generations(FileSystem(), store)[-1])


@pytest.fixture
def both(made: Path, tmp_path: Path) -> Iterator[Callable[[Change], tuple[Generation, Generation]]]:
    """The index as it was, and with a change."""
    opened: list[Generation] = []

    def change(what: Change) -> tuple[Generation, Generation]:
        copy = shutil.copytree(made, tmp_path / "copy")
        own = open_generation(FileSystem(), copy, 1)
        with own.env.begin(write=True) as txn:
            what(IndexTxn(own, txn))
        own.close()
        opened.extend([open_untouched(made, 1), open_untouched(copy, 1)])
        return opened[0], opened[1]

    yield change
    for generation in opened:
        generation.close()


def test_the_same_index(both: Callable[[Change], tuple[Generation, Generation]]) -> None:
    true, own = both(lambda index: None)
    assert compare._differences(true, own) == []
    assert compare.faults(own) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_that_differs(
    name: str, both: Callable[[Change], tuple[Generation, Generation]]
) -> None:
    change, differs, faulty = CHANGES[name]
    true, own = both(change)
    assert any(differs in found for found in compare._differences(true, own))
    assert compare._differences(own, true)  # also if it is the other that lacks a row
    told = compare.faults(own)
    if faulty is None:
        assert told == []
    else:
        assert any(faulty in found for found in told)
