"""``logstore web``: a store in a browser.

Invariants: without ``--write`` the store is opened to be read; beyond loopback, and with
``--write``, a browser must show the token that is printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import FileSystemError
from logstore.loading import needing
from logstore.tools import options
from logstore.tools.output import Output

if TYPE_CHECKING:
    from logstore.web.server import Server

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24


@options.command("web")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="0: any free one, which is printed.",
)
@click.option("--write", is_flag=True, help="Let dead letters be tried again and dropped.")
def command(output: Output, path: Path, host: str, port: int, write: bool) -> None:
    """Show STORE in a browser until interrupted: streams, entries, groups, dead letters, segments.

    The address is printed. It has a token in it where more can be reached than this machine's own
    pages, or where something can be changed. Needs the extra 'web'.
    """
    import secrets

    make_server = needing("web", _load)
    token = secrets.token_urlsafe(TOKEN_BYTES) if write or host not in LOOPBACK else ""
    opened = options.changing(path) if write else options.reading(path)
    with opened as store:
        server = make_server(store, host, port, token, write=write)
        try:
            server.bind()
        except OSError as exc:
            raise FileSystemError(f"{host}:{port} cannot be listened on: {exc.strerror}") from exc
        if output.json:
            output.json_object({"path": str(path), "address": server.address()})
        else:
            output.line(server.address())
        output.flush()
        server.run()


def _load() -> type[Server]:
    from logstore.web.server import Server

    return Server
