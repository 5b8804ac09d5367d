"""Prevents a public name that comes, goes or is misspelt without anyone having decided it."""

from __future__ import annotations

import logstore
from tests.house.repo import ROOT

PINNED = ROOT / "tests" / "house" / "public_names.txt"


def pinned() -> list[str]:
    """The names of the committed list; `#` starts a comment."""
    lines = (line.partition("#")[0].strip() for line in PINNED.read_text().splitlines())
    return [line for line in lines if line]


def test_the_list_is_sorted() -> None:
    assert pinned() == sorted(set(pinned()))


def test_the_public_names_are_the_pinned_ones() -> None:
    assert sorted(logstore.__all__) == pinned()


def test_every_public_name_is_there() -> None:
    assert [name for name in logstore.__all__ if not hasattr(logstore, name)] == []
