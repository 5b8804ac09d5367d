"""Prevents a pointer, or a borrowed reference, that is kept over a step that may run Python.

The list in docs/internals.md says of each function of Cython that has one what makes it sound.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.pointers import keeping
from tests.house.repo import ROOT

PARTS = sorted((ROOT / "logstore").rglob("*.pxi"))
SECTION = "## What compiled code keeps"
SAMPLE = """
cdef int safe(const u8* p) noexcept nogil:
    return p[0]


cdef class Rows:
    def first(self, bytes data not None,
              bint all=False):
        cdef const u8* p = data_of(data)
        return p[0]

    cdef Py_ssize_t size(self):
        return 1        # PyList_GET_ITEM
"""


def listed() -> dict[str, set[str]]:
    """The functions that the list names, by file."""
    text = (ROOT / "docs" / "internals.md").read_text()
    section = text.partition(SECTION + "\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+\.pxi)` \| (.*) \|$", section, re.MULTILINE)
    # In each row the names of functions stand before a colon, what else is said behind it.
    return {
        file: {
            name
            for part in row.split(";")
            for name in re.findall(r"`([\w.]+)`", part.partition(":")[0])
        }
        for file, row in rows
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_functions_with_pointers_that_may_run_python_are_listed(part: Path) -> None:
    """A new one is thought through, and one that is gone goes from the list, too."""
    assert listed().get(part.name, set()) == keeping(part)


def test_the_look_finds_what_it_must(tmp_path: Path) -> None:
    (tmp_path / "sample.pxi").write_text(SAMPLE)
    assert keeping(tmp_path / "sample.pxi") == {"Rows.first"}
