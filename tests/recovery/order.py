"""In what order a product makes things durable."""

from __future__ import annotations

from pathlib import Path

from logstore.fs import File, FileSystem


class Told(FileSystem):
    """A file system that tells in what order names and bytes are made durable."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def open(self, path: Path, **how: bool) -> File:  # type: ignore[override]
        file = super().open(path, **how)
        sync = file.sync

        def told() -> None:
            self.done.append(("sync", path.name))
            sync()

        file.sync = told  # type: ignore[method-assign]
        return file

    def rename(self, source: Path, target: Path) -> None:
        self.done.append(("rename", target.name))
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self.done.append(("directory", path.name))
        super().sync_directory(path)
