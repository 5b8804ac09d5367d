"""The demo's loader, a process that may be killed: reads the CSV, sorts, adds, acknowledges.

After each commit it writes one JSON line to stdout: what the store has acknowledged. It goes on
from ``stream.last_id``, so running it again is all there is to resuming.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from pathlib import Path

import click

from logstore.api.store import Store, open_store
from logstore.tools.command_options import pass_output
from logstore.tools.command_output import Output
from tests.demo.data import StreamRows, read_all

SEGMENT_BYTES = 4 << 20
BATCH = 1000  # entries in a commit; fewer when fewer rows are read


def load(output: Output, store: Store[str], rows: StreamRows, size: int) -> None:
    """Add what a stream does not have yet, a commit for each batch."""
    stream = store.stream(rows.name)
    done = bisect_right(rows.rows, stream.last_id, key=itemgetter(0))
    for start in range(done, len(rows), size):
        batch = rows.rows[start : start + size]
        ids = stream.add_many(((id, rows.fields(values)) for id, values in batch), batch=size)
        told = {"stream": rows.name, "last_id": str(ids.last), "added": len(ids)}
        output.json_object({**told, "entries": start + len(ids)})
        output.flush()


@click.command()
@click.argument("path", metavar="STORE", type=click.Path(path_type=Path))
@click.option("--every", type=click.IntRange(min=1), default=1)
@pass_output
def main(output: Output, path: Path, every: int) -> None:
    """Load flights and weather into STORE, or what of them is not there yet."""
    streams = read_all(every)
    with open_store(path, encoding="utf-8", segment_bytes=SEGMENT_BYTES) as store:
        for rows in streams:
            load(output, store, rows, max(1, BATCH // every))


if __name__ == "__main__":
    main()
