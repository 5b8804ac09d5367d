"""The store that the last code of a format wrote, and what it holds: where both lie, and how they
were written.

``store/`` is the store without what is derived or of one machine (index, LOCK, USERS, WAKE, BOOT,
RESERVE); ``content.txt`` is what ``tests.crash.states.store_content`` tells of it. Time and UUID
are fixed, so that a second run gives the same bytes.
"""

from __future__ import annotations

import ast
import pprint
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import logstore
from logstore import format as fmt
from logstore.log import storefile
from tests.crash.states import store_content
from tests.golden.store_v1.generate import KEPT, UUID
from tests.support.inside import FixedClock


@dataclass(frozen=True)
class GoldenStore:
    """One format's store in its folder; ``writer`` is the code that writes the format."""

    version: int
    folder: Path
    writer: str

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self.folder / "store"

    @property
    def _content(self) -> Path:
        return self.folder / "content.txt"

    def expected(self) -> store_content.Content:
        """What the store holds."""
        found: store_content.Content = ast.literal_eval(self._content.read_text(encoding="utf-8"))
        return found

    def write(self, fill: Callable[[logstore.Store[bytes], FixedClock], None]) -> None:
        """Write both, by the code of the format alone: a later one is refused."""
        if self.version != fmt.FORMAT_VERSION:
            raise SystemExit(f"this logstore writes another format: run it with {self.writer}")
        storefile.new_uuid = lambda: UUID
        with tempfile.TemporaryDirectory() as folder:
            path, clock = Path(folder) / "store", FixedClock()
            with logstore.open(
                path, clock=clock, background=False, segment_bytes=1 << 16, node_max_entries=8
            ) as store:
                fill(store, clock)
                found = store_content.content(store, clock)
            with logstore.open(path, clock=clock, background=False, readonly=True) as store:
                assert store_content.content(store, clock) == found
            shutil.rmtree(self.store, ignore_errors=True)
            self.store.mkdir()
            for name in KEPT:
                source = path / name
                copy = shutil.copytree if source.is_dir() else shutil.copyfile
                copy(source, self.store / name)
        told = pprint.pformat(found, width=100, compact=True)
        self._content.write_text(told + "\n", encoding="utf-8")
