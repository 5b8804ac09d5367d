"""Records that are malformed: what becomes of a row with a value that is not of its type.

As with Spark's own text sources: PERMISSIVE makes the value null and puts the whole entry as JSON
into the column ``_corrupt_record``, if the schema has it; DROPMALFORMED leaves the row out;
FAILFAST is an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from logstore.scan import conversion
from logstore.scan.conversion import Shape
from logstore.scan.record_batches import ColumnSource
from logstore.scan.scan_columns import Target
from logstore.scan.scan_records import entry_object
from logstore.spark_io.source_options import DROPMALFORMED, FAILFAST

_RECORD = (ColumnSource("id", standard=True), ColumnSource("pairs", standard=True, binary=True))


class Rows(Shape):
    """Turns gathered batches into those that Spark asks for; ``corrupt`` and ``of_store`` are the
    places of the columns for malformed records and for the ``store`` among the ``targets``, or -1.
    """

    def __init__(
        self, targets: Sequence[Target], *, mode: str, corrupt: int, of_store: int = -1,
        store: str = "",
    ) -> None:  # fmt: skip
        self._corrupt = corrupt
        self._of_store = of_store
        self._store = store
        self._drop = mode == DROPMALFORMED
        super().__init__(targets, strict=mode == FAILFAST)
        made = (corrupt, of_store)  # here, and not gathered
        self._values = [each for at, each in enumerate(targets) if at not in made]
        self.sources[:] = [each for at, each in enumerate(self.sources) if at not in made]
        if corrupt >= 0:
            self.sources += _RECORD

    def batch(self, gathered: Any) -> Any:
        """The batch with the types of the schema."""
        arrays: list[Any] = []
        bad: list[Any] = []
        for array, target in zip(gathered.columns, self._values, strict=False):
            arrays.append(self.array(array, target))
            if not target.standard and (self._drop or self._corrupt >= 0):
                mask = conversion.malformed(array, arrays[-1])
                if mask is not None:
                    bad.append(mask)
        malformed = _either(bad)
        own = [(self._corrupt, partial(_texts, gathered, malformed))]
        own += [(self._of_store, partial(_repeated, self._store, gathered.num_rows))]
        for place, make in sorted(own, key=itemgetter(0)):
            if place >= 0:
                arrays.insert(place, make())
        made = self.made(gathered, arrays)
        if self._drop and malformed is not None:
            import pyarrow.compute as pc

            return made.filter(pc.invert(malformed))
        return made


def _repeated(text: str, count: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(text, pa.string()), count)


def _either(masks: list[Any]) -> Any:
    import pyarrow.compute as pc

    if not masks:
        return None
    found = masks[0]
    for mask in masks[1:]:
        found = pc.or_(found, mask)
    return found


def _texts(gathered: Any, malformed: Any) -> Any:
    """The entries that are malformed as JSON, null for the others."""
    import pyarrow as pa

    if malformed is None:
        return pa.nulls(gathered.num_rows, pa.string())
    ids, pairs = gathered.columns[-2:]
    return pa.array(
        [
            _text(ids[at].as_py(), pairs[at].as_py()) if bad else None
            for at, bad in enumerate(malformed.to_pylist())
        ],
        pa.string(),
    )


def _text(id: str, pairs: list[dict[str, Any]]) -> str:
    found = [(pair["field"].encode(), pair["value"]) for pair in pairs]
    return json.dumps(entry_object(id, found), ensure_ascii=False)
