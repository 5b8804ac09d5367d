"""Prevents that rows laid over LMDB are found otherwise than if they were written to it.

The judge is LMDB, to which the same rows were written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest

from logstore.engine.runtime.overlaid_rows import OverlaidRows, Rows
from tests import seeds

KEYS = [bytes([first, second]) for first in range(1, 8) for second in range(4)]
LAID, BELOW = "laid", "below"


@contextmanager
def both(path: Path, rng: random.Random) -> Iterator[tuple[Any, Any, Any]]:
    """A transaction with rows over it, one to which they were written, and the database."""
    env = lmdb.open(str(path), max_dbs=1, map_size=1 << 20)
    try:
        db = env.open_db(b"rows")
        with env.begin(write=True) as txn:
            for key in rng.sample(KEYS, rng.randrange(len(KEYS))):
                txn.put(key, BELOW.encode(), db=db)
        with env.begin(write=True) as written, env.begin() as read:
            over = OverlaidRows(read, {db: "rows"}, {"rows": Rows({}, [])})
            for key in rng.sample(KEYS, rng.randrange(len(KEYS))):
                if rng.random() < 0.4:
                    over.delete(key, db=db)
                    written.delete(key, db=db)
                else:
                    over.put(key, LAID.encode(), db=db)
                    written.put(key, LAID.encode(), db=db)
            yield over, written, db
            written.abort()
    finally:
        env.close()


def moves(rng: random.Random) -> tuple[str, Callable[[Any], Any]]:
    """One move of a cursor, with what it tells."""
    key = rng.choice((*KEYS, b"\x03\x01\x01", b"\x09", b"\x01"))
    what = rng.choice(("first", "last", "next", "prev", "set_range", "set_key", "items"))
    if what in ("set_range", "set_key"):
        return f"{what} {key!r}", lambda cursor: getattr(cursor, what)(key)
    if what == "items":
        back, values = rng.random() < 0.5, rng.random() < 0.5
        ends = cursor_to_end(back=back)

        def items(cursor: Any) -> list[Any]:
            ends(cursor)
            rows = cursor.iterprev if back else cursor.iternext
            return list(islice(rows(values=values), rng_count))

        rng_count = rng.randrange(1, 40)
        return f"{rng_count} rows, back: {back}, values: {values}", items
    return what, lambda cursor: getattr(cursor, what)()


def cursor_to_end(*, back: bool) -> Callable[[Any], None]:
    """From nowhere LMDB begins at an end, as far as it did not come there by itself."""

    def go(cursor: Any) -> None:
        if not cursor.key():
            (cursor.last if back else cursor.first)()

    return go


@pytest.mark.parametrize("case", range(60))
def test_a_cursor_goes_as_that_of_lmdb(tmp_path: Path, case: int) -> None:
    rng = random.Random(f"{seeds.seed()}-{case}")
    with both(tmp_path / "env", rng) as (over, written, db):
        for key in KEYS:
            assert over.get(key, db=db) == written.get(key, db=db)
        ours, theirs = over.cursor(db=db), written.cursor(db=db)
        done = []
        for _ in range(60):
            name, move = moves(rng)
            done.append(name)
            if name in ("next", "prev") and not ours.key():
                continue  # LMDB goes on from where it fell off, which nobody relies on
            assert move(ours) == move(theirs), done
            if "rows" not in name:
                assert ours.item() == theirs.item(), done
                continue
            place = rng.choice(KEYS)  # where an iteration leaves a cursor, nobody relies on either
            assert ours.set_range(place) == theirs.set_range(place), done
            assert ours.item() == theirs.item(), done


def test_what_nothing_is_laid_over_is_lmdb_alone(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path / "env"), max_dbs=1, map_size=1 << 20)
    try:
        db = env.open_db(b"rows")
        with env.begin() as txn:
            assert isinstance(OverlaidRows(txn, {db: "rows"}, {}).cursor(db=db), lmdb.Cursor)
    finally:
        env.close()
