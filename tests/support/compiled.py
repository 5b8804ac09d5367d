"""What compiled functions take, which the compiler tells in the first lines of their docstrings."""

from __future__ import annotations

from typing import Any


def parameter_names(compiled: Any) -> list[str]:
    """The names of the parameters of a compiled function, method or class."""
    line = (compiled.__doc__ or "()").partition("\n")[0]
    parts = line.partition("(")[2].removesuffix(")").split(", ")
    names = [part.partition("=")[0].split()[-1] for part in parts if part]
    return [name for name in names if name not in {"self", "cls", "/", "*"}]


def has_parameters(compiled: Any) -> bool:
    """Whether the docstring begins with parameters; that of a class without any does not."""
    return "(" in (compiled.__doc__ or "").partition("\n")[0]
