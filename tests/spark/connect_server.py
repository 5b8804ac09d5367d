"""A server of Spark Connect without the jar: python -m tests.spark.connect_server.

Prints its URL once it is there, and ends with its input.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from tests.spark import conftest


def serve(spark: Any) -> str:
    """Start the server in the Java of a session; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service = spark.sparkContext._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context)
    return f"sc://127.0.0.1:{port}"


def main() -> None:
    """Serve until there is no more input."""
    spark = conftest.session(jars="")
    print(serve(spark), flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
