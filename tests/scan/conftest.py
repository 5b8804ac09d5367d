"""One store for the tests that only add streams to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logstore.api.store import Store
from tests.scan.scanned_stores import make_store

pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("scan") / "store") as opened:
        yield opened
