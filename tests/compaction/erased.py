"""A store of which entries are erased, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore.fs import FileSystem
from tests.crash.twins import in_place
from tests.scan.look import make_store

ENTRIES = 1200
ERASED = 300


class Stepping(FileSystem):
    """The real one, which says what it is about to remove, rename or sync."""

    def __init__(self, before: Callable[[str, Path], None]) -> None:
        self._before = before

    def remove(self, path: Path) -> None:
        self._before("remove", path)
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        self._before("rename", target)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._before("sync", path)
        super().sync_directory(path)


@contextmanager
def stepping(before: Callable[[str, Path], None]) -> Iterator[None]:
    """Stores that are opened meanwhile tell their steps."""
    with in_place(Stepping(before)):
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
