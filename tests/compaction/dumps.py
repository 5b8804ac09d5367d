"""All that a store tells of itself, for comparing before and after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import logstore

Row = tuple[logstore.StreamID, list[tuple[bytes, bytes]]]


@dataclass
class Dump:
    """Entries and infos of all streams."""

    entries: dict[bytes, list[Row]]
    infos: dict[bytes, dict[str, Any]]


def dump(store: logstore.Store[bytes]) -> Dump:
    """Everything in a store."""
    entries = {
        name: [(entry.id, entry.pairs) for entry in store.stream(name)] for name in store.streams()
    }
    return Dump(entries, {name: store.stream(name).info().as_dict() for name in entries})


def everywhere(path: Path, needle: bytes) -> list[str]:
    """Files below ``path`` that contain ``needle``."""
    return [
        str(file.relative_to(path))
        for file in sorted(path.rglob("*"))
        if file.is_file() and needle in file.read_bytes()
    ]


def tree_bytes(path: Path) -> int:
    """Sizes of all files below ``path``."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
