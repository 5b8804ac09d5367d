"""File names, built and parsed in this one place.

Numbers are zero-padded so that names sort as the numbers do. A ``.tmp`` name is never valid data.
"""

from __future__ import annotations

from pathlib import Path

from logstore.fs import FileSystem

STORE = "STORE"
LOCK = "LOCK"
USERS = "USERS"
WAKE = "WAKE"
BOOT = "BOOT"
RESERVE = "RESERVE"
SHIPPED = "SHIPPED"
LOG = "log"
CHECKPOINTS = "checkpoint"
PINS = "pins"
QUARANTINE = "quarantine"
INDEX = "index"
SEGMENT_SUFFIX = ".log"
HINT_SUFFIX = ".hint"
STATISTICS_SUFFIX = ".stats"
DERIVED_SUFFIXES = (HINT_SUFFIX, STATISTICS_SUFFIX)  # of files that are made of a segment
_SUFFIXES = (SEGMENT_SUFFIX, *DERIVED_SUFFIXES)
_DIGITS = 20
TEMPORARY = ".tmp"


def segment(store: Path, number: int) -> Path:
    """The log file of a segment."""
    return store / LOG / f"{number:0{_DIGITS}d}{SEGMENT_SUFFIX}"


def hint(store: Path, number: int) -> Path:
    """The hint of a segment."""
    return store / LOG / f"{number:0{_DIGITS}d}{HINT_SUFFIX}"


def statistics(store: Path, number: int) -> Path:
    """The statistics of the columns of a segment's nodes."""
    return store / LOG / f"{number:0{_DIGITS}d}{STATISTICS_SUFFIX}"


def of_segment(store: Path, number: int) -> list[Path]:
    """All files of a segment, itself last."""
    return [hint(store, number), statistics(store, number), segment(store, number)]


def checkpoint(store: Path, position: int) -> Path:
    """The checkpoint of a position."""
    return store / CHECKPOINTS / f"{position:0{_DIGITS}d}.ckpt"


def generation(store: Path, number: int) -> Path:
    """The directory of an index generation."""
    return store / INDEX / str(number)


def generation_beside(store: Path, number: int) -> Path:
    """The directory of one that is built beside those who commit, or is not used any more: no one
    that is built under LOCK has this name. It counts as one that was not finished."""
    return store / INDEX / f"0{number}{TEMPORARY}"


def generations_beside(fs: FileSystem, store: Path) -> list[Path]:
    """All of these."""
    found = fs.names(store / INDEX)
    return [store / INDEX / name for name in found if is_half_generation(name) and name[0] == "0"]


def boot_beside(store: Path) -> Path:
    """The file with the next content of BOOT, before that is used."""
    return store / f"{BOOT}.NEXT{TEMPORARY}"


def _is_number(text: str) -> bool:
    """In plain digits: others count as digits too, and are no names of ours."""
    return text.isascii() and text.isdigit()


def _numbers(fs: FileSystem, folder: Path, suffix: str) -> list[int]:
    numbers: list[int] = []
    for name in fs.names(folder):
        stem, dot, rest = name.partition(".")
        if dot + rest == suffix and len(stem) == _DIGITS and _is_number(stem):
            numbers.append(int(stem))
    return sorted(numbers)


def segments(fs: FileSystem, store: Path) -> list[int]:
    """Numbers of all segments on disk, ascending."""
    return _numbers(fs, store / LOG, SEGMENT_SUFFIX)


def hints(fs: FileSystem, store: Path) -> list[int]:
    """Numbers of the segments that have a hint on disk, ascending."""
    return _numbers(fs, store / LOG, HINT_SUFFIX)


def checkpoints(fs: FileSystem, store: Path) -> list[int]:
    """Positions of all checkpoints on disk, ascending."""
    return _numbers(fs, store / CHECKPOINTS, ".ckpt")


def generations(fs: FileSystem, store: Path) -> list[int]:
    """Numbers of all index generations on disk, ascending."""
    return sorted(int(name) for name in fs.names(store / INDEX) if _is_number(name))


def is_generation(name: str) -> bool:
    """Whether a name in index/ is one that we give, finished or not."""
    return _is_number(name.removesuffix(TEMPORARY))


def is_derived(name: str, *, half: bool = False) -> bool:
    """Whether a name in log/ is that of a file that is made of a segment. ``half``: also of one
    that is not finished."""
    whole = name.removesuffix(TEMPORARY) if half else name
    return whole.endswith(DERIVED_SUFFIXES) and is_segment_file(name)


def is_tail(name: str) -> bool:
    """Whether a name in quarantine/ is that of a tail that was set aside, finished or not."""
    number, dash, rest = name.removesuffix(TEMPORARY).partition("-")
    offset = rest.removesuffix(".tail")
    return bool(dash) and offset != rest and _is_number(number) and _is_number(offset)


def is_half_generation(name: str) -> bool:
    """Whether a name in index/ is that of one that was not finished."""
    return name.endswith(TEMPORARY) and is_generation(name)


def is_half_checkpoint(name: str) -> bool:
    """Whether a name in checkpoint/ is that of one that was not finished."""
    stem = name.removesuffix(".ckpt" + TEMPORARY)
    return stem != name and len(stem) == _DIGITS and _is_number(stem)


def segment_number(path: str) -> int:
    """The number of the segment whose log has this path in a store; 0: another file."""
    stem, dot, rest = path.rpartition("/")[2].partition(".")
    return int(stem) if dot + rest == SEGMENT_SUFFIX and _is_number(stem) else 0


def is_segment_file(name: str) -> bool:
    """Whether a name in log/ is one that we give, finished or not."""
    stem, dot, rest = name.removesuffix(TEMPORARY).partition(".")
    return len(stem) == _DIGITS and _is_number(stem) and dot + rest in _SUFFIXES
