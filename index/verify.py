"""Every row of an index against its CRC.

Invariants: reads only; looks at rows as bytes, whatever they mean. Decides nothing.
"""

from __future__ import annotations

from logstore.index import keys
from logstore.index.env import DATABASES, Generation
from logstore.row_seal import unseal


def every_row(own: Generation) -> int:
    """Check the CRC of each row; how many there are. CorruptionError at the first that is wrong."""
    count = 0
    with own.env.begin() as txn:
        for name in ("main", *DATABASES):
            with txn.cursor(db=own.databases[name]) as cursor:
                for key, data in cursor:
                    if name == "main" and key[:1] not in (keys.META_KEY, keys.STREAM_PREFIX):
                        continue  # of a named database: LMDB's own
                    unseal(key, data)
                    count += 1
    return count
