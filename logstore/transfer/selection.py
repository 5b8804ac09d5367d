"""Which streams are carried, what they are called on the other side, what gives way there.

It knows neither the store nor a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from logstore.errors import OptionError
from logstore.wire.resp.globs import Glob

Policy: TypeAlias = Literal["refuse", "skip", "replace"]


class Wanted:
    """What a transfer was asked for.

    ``patterns``: globs as of KEYS, any of which a name must fit; none: all streams. ``prefix``
    stands before every name on the other side. ``policy``: what becomes of another stream that has
    the name there already.
    """

    def __init__(
        self, patterns: Sequence[bytes] = (), prefix: bytes = b"", policy: Policy = "refuse"
    ) -> None:
        if policy not in get_args(Policy):
            raise OptionError(f"policy is 'refuse', 'skip' or 'replace': {policy!r}")
        self.patterns = tuple(patterns)
        self.prefix = prefix
        self.policy: Policy = policy

    @cached_property
    def _globs(self) -> list[Glob]:
        return [Glob(each) for each in self.patterns]

    @property
    def replace(self) -> bool:
        """Whether another stream gives way."""
        return self.policy == "replace"

    def wants(self, name: bytes) -> bool:
        """Whether a stream of this name is carried."""
        return not self._globs or any(each.fits(name) for each in self._globs)

    def target(self, name: bytes) -> bytes:
        """Its name on the other side."""
        return self.prefix + name
