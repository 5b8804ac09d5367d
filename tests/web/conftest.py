"""A store with odd things in it, and the address of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from tests.web.serving import ENTRIES, served


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with markup in its values, names that are no text, groups and dead letters."""
    path = tmp_path_factory.mktemp("web") / "store"
    with logstore.open(path, encoding="utf-8") as opened:
        orders = opened.stream("orders")
        orders.add_many(
            (f"{1_700_000_000_000 + 1000 * n}-0", {"n": str(n), "who": "<b>anna</b>"})
            for n in range(ENTRIES)
        )
        group = orders.group("packers", start="0")
        group.configure(max_deliveries=1, dead_letter="orders:dead")
        for delivery in group.read("carl", count=3):
            delivery.nack(error="no such <article>")
        group.read("dora", count=7)
        opened.stream(b"odd\xff").add({"a": "1"})
        opened.stream("0xab").add({"a": "2"})
        opened.stream("a:name:of:a:hundred:and:fifty:characters" * 4).add({"a": "3"})
    return path


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    """A server that only shows."""
    with served(store) as found:
        yield found
