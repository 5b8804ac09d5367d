"""Functions of Cython that may run Python and have a pointer, or a reference that is not their own.

A function that is marked ``nogil`` cannot run Python: the compiler refuses that.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = re.compile(r"^( *)(?:def|cdef|cpdef)\b(?!.*(?:struct|class|enum|extern)\b)[^=]*?(\w+)\(")
_CLASS = re.compile(r"^cdef class (\w+)")
# A pointer to something, or what gives a place in an object or a reference that is not owned.
_KEPT = re.compile(
    r"\b(?:u8|u64|int64_t|char|void|Buf|Elem|Row|RowRef|Shape|Stored|Pair|PendingRow|PendingRun|"
    r"Pending|Place|Column|Condition|Step|Asked|Py_buffer|PyObject|Awaited|Master|Entry|Range|Slot)\*+"
    r"|\bNodeWalk\b|\bself\.\w+\.data\b|\bPy_buffer\b|GET_ITEM|PyDict_Next|GetItemWithError|AS_STRING|PyUnicode_DATA|\bdata_of\("
)


def functions(path: Path) -> dict[str, tuple[str, str]]:
    """Signature and body of each function, by its name, with that of its class before it."""
    found: dict[str, tuple[str, str]] = {}
    lines, at, owner = path.read_text().splitlines(), 0, ""
    while at < len(lines):
        if lines[at] and not lines[at][0].isspace():
            made = _CLASS.match(lines[at])
            owner = made[1] if made else ""
        head = _HEAD.match(lines[at])
        at += 1
        if head is None:
            continue
        signature = lines[at - 1]
        while not signature.partition("#")[0].rstrip().endswith(":") and at < len(lines):
            signature += "\n" + lines[at]
            at += 1
        body, depth = "", len(head[1])
        while at < len(lines) and (
            not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > depth
        ):
            body += lines[at].partition("#")[0] + "\n"
            at += 1
        name = f"{owner}.{head[2]}" if owner and depth else head[2]
        found[name] = signature, body
    return found


def keeping(path: Path) -> set[str]:
    """Those that may run Python, and keep what Python may take from them."""
    return {
        name
        for name, (signature, body) in functions(path).items()
        if "nogil" not in signature
        and not name.endswith("__dealloc__")  # nobody else has the object any more
        and _KEPT.search(signature + body)
    }
