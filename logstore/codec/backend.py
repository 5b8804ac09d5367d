"""Which codec is in use: the compiled one if it was built, else the pure one.

The environment variable LOGSTORE_CODEC decides: ``pure``, or ``native`` (its absence is an
ImportError then). It is read once, at import.

Invariants: the choice never changes while the process lives. It may not know what a node is.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final, cast

from logstore.codec.interface import Codec
from logstore.errors import OptionError

if TYPE_CHECKING:
    from logstore.codec import pure as _pure

    pure: Final[Codec] = _pure


def _load_pure() -> Codec:
    """The pure codec; loaded where it is used, for it is a dozen modules."""
    return cast(Codec, importlib.import_module("logstore.codec.pure"))


def _load_native() -> tuple[Codec | None, ImportError | None]:
    try:
        module = importlib.import_module("logstore.codec.native")
    except ImportError as error:
        return None, error
    wanted = sorted(name for name in vars(Codec) if name[0] != "_")
    missing = [name for name in wanted if not hasattr(module, name)]
    if missing:
        return None, ImportError(
            f"the compiled codec is older than the pure one, it has no {missing[0]}: build it again"
        )
    return cast(Codec, module), None


native_or_none, why_not_native = _load_native()


def _choose(wish: str) -> Codec:
    if wish not in ("", "pure", "native"):
        raise OptionError(f"LOGSTORE_CODEC is {wish!r}; it can be 'pure' or 'native'")
    if wish == "pure":
        return _load_pure()
    if native_or_none is not None:
        return native_or_none
    if wish == "native":
        raise ImportError("LOGSTORE_CODEC=native, but it was not built") from why_not_native
    return _load_pure()


_in_use: Final = _choose(os.environ.get("LOGSTORE_CODEC", ""))


def codec() -> Codec:
    """The codec in use."""
    return _in_use


def codec_name() -> str:
    """``native`` or ``pure``, for `info` and for error reports."""
    return "native" if _in_use is native_or_none else "pure"
