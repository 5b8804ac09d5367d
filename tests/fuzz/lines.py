"""Lines of an import: JSON and CSV give rows, or errors that name their lines, and nothing else.

An input is a byte that says how (bit 0: CSV; the rest: where IDs come from), then the file.
"""

from __future__ import annotations

import io

from logstore.errors import Error, InputLineError
from logstore.ids import StreamID
from logstore.tools.interchange.text_lines import read_csv, read_json
from logstore.tools.interchange.text_rows import RowIDs, one_by_one

JSON = (
    b'{"id": "5-1", "fields": {"a": "1", "b": 2.50}}\n{"a": 1}\n\n',
    b'{"id": "5-1", "pairs": [["a", "1"], ["a", 2]]}\n',
    b'{"id": "5", "pairs_base64": [["YQ==", "/w=="]]}\n{"pairs_base64": [["a", "b"]]}',
    b'{"time": "2026-01-01T00:00:00", "a": "\\ud800"}\n{"time": 1e400, "a": NaN}\n',
    b"[" * 30 + b"\n" + b'{"a":' * 30 + b"\n" + b'"text"\n' + b"\xef\xbb\xbf{}\n\xff\n",
)
CSV = (
    b"id,a,b\n5-1,1,2\n5-2,,\n\n5-3,1\n",
    b'time,a\n"2026-01-01",1\n1767225600,"with ""quotes"", and\nlines"\n"broken"x,1\n',
    b"\xef\xbb\xbfid,a\n5-1,\xff\xfe\n",
    b'a\n"never closed\n',
)
WAYS = ({}, {"auto": True}, {"id_field": "id"}, {"time_field": "time"},
        {"time_field": "time", "time_format": "ms"},
        {"time_field": "time", "time_format": "%Y-%m-%d"})  # fmt: skip
SEEDS = [
    bytes((how * 2 + csv,)) + data
    for csv, samples in enumerate((JSON, CSV))
    for data in samples
    for how in range(len(WAYS))
]


def one(data: bytes) -> None:
    """Each row has pairs of bytes, and each error a line of the input."""
    how, content = (data[0] if data else 0), data[1:]
    try:
        ids = RowIDs(**WAYS[(how >> 1) % len(WAYS)])  # type: ignore[arg-type]
        source = io.BytesIO(content)
        found = one_by_one(read_csv(source, ids) if how & 1 else read_json(source, ids))
        last = 0
        for each in found:
            if isinstance(each, InputLineError):
                number = each.line_number or 0
            else:
                number = each.line
                assert each.pairs
                assert all(type(part) is bytes for pair in each.pairs for part in pair)
                assert each.id is None or isinstance(each.id, StreamID)
            assert last < number <= content.count(b"\n") + content.count(b"\r") + 1
            last = number
    except Error:
        return
