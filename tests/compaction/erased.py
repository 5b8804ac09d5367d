"""A store of which entries are erased, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.scan.scanned_stores import make_store
from tests.support.watched_files import FileOperation, WatchedFileSystem, in_place

ENTRIES = 1200
ERASED = 300


class NameChanges(WatchedFileSystem):
    """Calls a function before a name is removed, renamed or synced."""

    def __init__(self, before: Callable[[str, Path], None]) -> None:
        self._before = before

    def before(self, operation: FileOperation) -> None:
        if operation.kind in {"remove", "rename", "sync_directory"}:
            self._before(operation.kind.removesuffix("_directory"), operation.path)


@contextmanager
def before_name_changes(before: Callable[[str, Path], None]) -> Iterator[None]:
    """Stores that are opened meanwhile call it before a name is removed, renamed or synced."""
    with in_place(NameChanges(before)):
        yield


def fill(path: Path) -> None:
    """A store of several segments, with entries in each that are to be erased."""
    with make_store(path, background=False) as store:
        store["x"].add_many(
            (((n, 0), {"n": n, "text": "t" * 200}) for n in range(1, ENTRIES + 1)), batch=50
        )
        store["x"].add({"n": 0}, id=(ENTRIES + 1, 0))  # in an open node


def is_segment(path: Path) -> bool:
    """Whether it is one of the log."""
    return path.suffix == ".log"
