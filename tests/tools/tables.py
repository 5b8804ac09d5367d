"""Tables to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")
ipc = pytest.importorskip("pyarrow.ipc")
parquet = pytest.importorskip("pyarrow.parquet")


def written(path: Path, table: Any, rows: int = 1000) -> Path:
    """A table as its name says."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
        return path
    kinds = {".gz": "gzip", ".zst": "zstd"}
    with pa.OSFile(str(path), "wb") as file:
        packed = kinds.get(path.suffix)
        to = pa.CompressedOutputStream(file, packed) if packed else file
        make = ipc.new_stream if ".arrows" in path.name else ipc.new_file
        with make(to, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        to.close()
    return path
