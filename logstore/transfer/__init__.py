"""Streams between a store and Redis or Valkey: RDB files, payloads of DUMP, servers that run; and
streams to Parquet.

``import_file``, ``import_server``, ``follow``, ``export_file`` and ``export_server`` are what the
commands ``logstore redis ..`` do, ``export_parquet`` and ``export_parquet_file`` what ``logstore
export`` does, for use from Python. Invariants: a name in the store, on a server or in a directory
has a whole stream or file, or what it had before, also after a kill; nodes are carried as they are
where the other side can take them whole.
"""

from __future__ import annotations

from logstore.transfer.following import Follow, follow
from logstore.transfer.job import Report, Wanted
from logstore.transfer.parquet_export import ParquetReport, export_parquet, export_parquet_file
from logstore.transfer.peer_server import Server
from logstore.transfer.rdb_files import export_file, import_file
from logstore.transfer.server_export import export_server
from logstore.transfer.server_import import import_server

__all__ = [
    "Follow",
    "ParquetReport",
    "Report",
    "Server",
    "Wanted",
    "export_file",
    "export_parquet",
    "export_parquet_file",
    "export_server",
    "follow",
    "import_file",
    "import_server",
]
