"""What a damaged store still tells, held against what it held."""

from __future__ import annotations

from pathlib import Path

import logstore
from logstore.ids import parse_id
from logstore.recovery.salvage.run import SalvageReport
from tests.corruption import shop
from tests.corruption.shop import Shop


def read(path: Path) -> Shop:
    """What a store holds."""
    found = Shop(path)
    with logstore.open(path, background=False) as opened:
        shop.take_down(opened, found)
    return found


def covered(report: SalvageReport, stream: bytes, id: str) -> bool:
    """Whether the report says that this entry is gone."""
    here = parse_id(id)
    return any(
        not each.stream or (each.stream == stream and each.first <= here <= each.last)
        for each in report.gone
    )


def nameless(found: Shop, ever: shop.Entries) -> bytes:
    """The stream whose name was lost and that holds nothing but these entries."""
    for name, kept in found.live.items():
        if b"lost" in name and kept and all(ever.get(id) == pairs for id, pairs in kept.items()):
            return name
    return b""


def held_against(made: Shop, found: Shop, report: SalvageReport) -> int:
    """Nothing invented, nothing lost without a word; how many entries are gone."""
    missing = 0
    for name, live in made.live.items():
        ever = made.ever.get(name, {})
        now = name if name in found.live else nameless(found, ever)
        kept = found.live.get(now, {})
        assert all(ever.get(id) == pairs for id, pairs in kept.items())
        lost = [id for id in live if id not in kept]
        assert all(covered(report, now, id) for id in lost), (name, lost, report)
        missing += len(lost)
    return missing
