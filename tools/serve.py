"""``logstore serve``: a store for every Redis and Valkey client, over TCP or a Unix socket.

What it does is in ``serving``, which is loaded to do it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.loading import load
from logstore.tools import options
from logstore.tools.output import Output

if TYPE_CHECKING:
    from logstore.options import Sync
    from logstore.wire.table import Profile

PROFILES = ["redis-8.2", "redis-8.10", "valkey-9"]


@options.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6379,
    show_default=True,
    help="0: any free one, which is printed.",
)
@click.option("--unixsocket", type=click.Path(path_type=Path), help="Also listen on this path.")
@click.option(
    "--requirepass-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the password of the default user.",
)
@click.option(
    "--aclfile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with users and what they may do, as Redis has it.",
)
@click.option(
    "--auth-timeout",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="A client that has not given the password by then is cut off.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--compat",
    type=click.Choice(PROFILES),
    default="redis-8.10",
    show_default=True,
    help="Whose commands and replies.",
)
@options.sync_option
@click.option(
    "--database",
    "databases",
    multiple=True,
    metavar="N=PATH",
    help="Another store, which SELECT N chooses; STORE is number 0.",
)
@click.option("--allow-flush", is_flag=True, help="FLUSHALL and FLUSHDB remove everything.")
@click.option("--metrics-port", type=click.IntRange(0, 65535),
              help="Answer Prometheus here: /metrics, /health, /ready.")  # fmt: skip
@click.option("--metrics-host", default="127.0.0.1", show_default=True,
              help="Where; it asks for no password.")  # fmt: skip
def command(
    output: Output,
    path: Path,
    host: str,
    port: int,
    unixsocket: Path | None,
    requirepass_file: Path | None,
    aclfile: Path | None,
    auth_timeout: float,
    tls_cert: Path | None,
    tls_key: Path | None,
    compat: Profile,
    sync: Sync,
    databases: tuple[str, ...],
    allow_flush: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Serve STORE to clients of Redis and Valkey until interrupted; it is made if it is missing.

    Other processes may have the store open meanwhile. Beyond loopback a password is needed.
    systemd is told of the start, the end and the watchdog (Type=notify, WatchdogSec=).
    """
    load("logstore.tools.serving").serve(
        output,
        path,
        host=host,
        port=port,
        unixsocket=unixsocket,
        requirepass_file=requirepass_file,
        aclfile=aclfile,
        auth_timeout=auth_timeout,
        tls_cert=tls_cert,
        tls_key=tls_key,
        compat=compat,
        sync=sync,
        databases=databases,
        allow_flush=allow_flush,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
    )
