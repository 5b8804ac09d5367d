"""The version that stands in every head: which are read, and the words for those that are not.

Invariants: a newer version is refused by a typed error before anything behind the head is believed;
what is written has the newest version, whatever the file beside it has. Asked only after a head's
CRC was found right, where it has one.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.errors import CorruptionError, FormatVersionError


def readable(version: int) -> bool:
    """Whether this logstore reads what a head with this version stands before."""
    return fmt.OLDEST_VERSION <= version <= fmt.FORMAT_VERSION


def check(version: int, what: object) -> None:
    """FormatVersionError if ``what`` is of a newer version; CorruptionError if of none."""
    if version > fmt.FORMAT_VERSION:
        raise FormatVersionError(
            f"{what} is of format {version}, this logstore reads up to {fmt.FORMAT_VERSION}: "
            "upgrade logstore to read it"
        )
    if not readable(version):
        raise CorruptionError(f"{what} says that it is of format {version}, which never was")
