"""Both codecs, and the peers, as fixtures.

A missing compiled codec is a failure where LOGSTORE_REQUIRE_NATIVE=1 (as in continuous
integration), else a skip that prints why.
"""

from __future__ import annotations

import os

import pytest

from logstore.codec import Codec, native_or_none, pure
from logstore.codec.backend import why_not_native
from tests.peers.servers import peer, redis_peer, valkey_peer

__all__ = ["codec", "native", "peer", "redis_peer", "valkey_peer"]


def _native() -> Codec:
    if native_or_none is not None:
        return native_or_none
    reason = f"the compiled codec is not there: {why_not_native}"
    if os.environ.get("LOGSTORE_REQUIRE_NATIVE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", params=["pure", "native"])
def codec(request: pytest.FixtureRequest) -> Codec:
    """Each codec in turn."""
    return pure if request.param == "pure" else _native()


@pytest.fixture(scope="session")
def native() -> Codec:
    """The compiled codec, to be compared with the pure one."""
    return _native()
