"""Functions of the product with something before and behind each call, until it is undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def around(
    owner: Any,
    name: str,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
) -> Callable[[], None]:
    """Call these with the arguments of the function; what is returned puts the function back."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args)
        result = original(*args, **kwargs)
        if after is not None:
            after(*args)
        return result

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original)
