"""The web view of a store: addresses, the pages behind them, and a server for them.

Invariants: a page reads in a thread of the framework's pool, never in the event loop. An error of
logstore is a page with its message and a status, never a traceback. The templates escape what is
shown of a store. Nothing is changed but what ``write`` permits. The server's socket listens before
its address is printed, so that it can be opened at once; SIGINT and SIGTERM end the server after
the requests at hand.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import uvicorn
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from logstore import __version__
from logstore.api import coded, showing
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.errors import (
    EntryNotFoundError,
    Error,
    StreamNotFoundError,
    UsageError,
)
from logstore.telemetry.gathering import store_numbers, store_trouble
from logstore.telemetry.segment_parts import Picture
from logstore.web import drawings, entry_page, entry_search, views
from logstore.web.addresses import id_of, key_of, link, name_of
from logstore.web.dead_letters import dead_letters
from logstore.web.guard import LOOPBACK, Guard
from logstore.web.observing import Observer
from logstore.web.stream_list import BY_NAME, COLUMNS, stream_list

ASSETS = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
PAGE_MAX = 1_000_000


def _page(request: Request, name: str) -> int:
    """The number of a page that an address asks for; 1 where it is none."""
    number = request.query_params.get(name, "1")
    return min(int(number), PAGE_MAX) if number.isdecimal() else 1


def _date(ms: int) -> str:
    """Unix milliseconds, for people."""
    return showing.date(showing.at(ms))


class Pages:
    """The pages of one store, by address."""

    def __init__(self, store: Store[bytes], *, write: bool) -> None:
        self._store = store
        self._path = str(opened_of(store).path)
        self._write = write
        self._observer = Observer(store)
        self._templates = Environment(
            loader=PackageLoader("logstore.web"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., str]] = {
            "ago": showing.ago,
            "counted": showing.counted,
            "date": showing.date,
            "moment": _date,
            "quoted": entry_search.quoted,
            "share": showing.share,
            "size": showing.size,
            "span": showing.length,
            "text": plain_text,
        }
        self._templates.filters.update(filters)
        known: Any = self._templates.globals  # its type is of what is there at first
        known.update(link=link, charts=self._charts, ink_on=drawings.ink_on)

    def _charts(self, stream: str = "") -> list[drawings.Chart]:
        """The rates of a stream, or of the store, as charts."""
        return [drawings.chart(each) for each in self._observer.rates(stream)]

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page made of a template."""
        self._observer.asked()
        known = self._observer.findings
        html = self._templates.get_template(f"{template}.html").render(
            page=template,
            path=self._path,
            version=__version__,
            write=self._write,
            mark=(0, "") if known is None else known.mark,
            **values,
        )
        return HTMLResponse(html, status)

    def streams(self, request: Request) -> Response:
        """All streams."""
        asked = request.query_params
        text = asked.get("q", "")
        found = stream_list(
            self._store,
            text,
            _page(request, "page"),
            asked.get("sort", BY_NAME),
            up="up" in asked,
        )
        numbers = store_numbers(opened_of(self._store))
        return self.page("streams", found=found, text=text, store=numbers, columns=COLUMNS)

    def _stream(self, request: Request) -> Stream[bytes]:
        """The stream that an address names; StreamNotFoundError."""
        name = name_of(request.query_params.get("name", ""))
        stream = self._store.stream(name)
        if stream.name not in self._store:
            raise StreamNotFoundError("there is no stream of this name", stream=name)
        return coded.as_kept(opened_of(self._store), name)

    def stream(self, request: Request) -> Response:
        """One stream: its entries by time, and its groups."""
        stream = self._stream(request)
        given = request.query_params
        wanted = (given.get(name, "") for name in ("since", "until", "q", "before"))
        asked = entry_search.Asked(*wanted)
        found = entry_search.search(stream, asked)
        place = views.GroupPlace(given.get("after", ""), _page(request, "groups"))
        groups, next_groups = views.group_rows(self._store, stream.name, place)
        return self.page(
            "stream",
            200 if found.is_understood else 400,
            name=plain_text(stream.name),
            key=key_of(stream.name),
            info=stream.info(),
            found=found,
            asked=asked,
            groups=groups,
            next_groups=next_groups,
        )

    def entry(self, request: Request) -> Response:
        """One entry; of an ID that is gone, or is none, what can be done."""
        stream = self._stream(request)
        name, key = plain_text(stream.name), key_of(stream.name)
        text = request.query_params.get("id", "")
        id = id_of(text)
        if id is None:
            return self.page("noid", 404, name=name, key=key, text=text[:100])
        after = request.query_params.get("after", "")
        shown = entry_page.entry_page(self._store, stream, id, after)
        return self.page("entry", 200 if shown.there else 404, name=name, key=key, shown=shown)

    def value(self, request: Request) -> Response:
        """The bytes of one value, as a file: it is never shown as anything that a browser runs."""
        stream = self._stream(request)
        id = id_of(request.query_params.get("id", ""))
        number = request.query_params.get("field", "")
        data = None if id is None else entry_page.whole_value(stream, id, number)
        if data is None:
            raise EntryNotFoundError("there is no such value: open its entry again")
        file = f'attachment; filename="{id}-{int(number)}.bin"'
        return Response(
            data, media_type="application/octet-stream", headers={"Content-Disposition": file}
        )

    def dead(self, request: Request) -> Response:
        """The streams of dead letters."""
        page = _page(request, "page")
        rows, pages = views.dead_letter_streams(self._store, page)
        found = [(row, dead_letters(self._store.stream(name_of(row.key)))) for row in rows]
        return self.page("dead", found=found, number=page, pages=pages)

    def _writable(self, request: Request) -> tuple[Stream[bytes], str]:
        """The stream and the ID of a change; UsageError if nothing may be changed."""
        if not self._write:
            raise UsageError("this server only shows: start it with --write to change something")
        return self._stream(request), request.query_params.get("id", "")

    def drop(self, request: Request) -> Response:
        """Delete a dead letter."""
        stream, entry_id = self._writable(request)
        stream.delete(entry_id)
        return RedirectResponse("/dead", 303)

    def retry(self, request: Request) -> Response:
        """Give a dead letter back to the stream that it came from."""
        stream, entry_id = self._writable(request)
        self._store.requeue(stream.name, entry_id)
        return RedirectResponse("/dead", 303)

    def doctor(self, _request: Request) -> Response:
        """What the doctor finds."""
        return self.page("doctor", findings=self._observer.examined())

    def segments(self, _request: Request) -> Response:
        """The segments, as a map."""
        used = views.used(self._store)
        picture = Picture(used)
        return self.page(
            "segments",
            used=used,
            picture=picture,
            bars=drawings.bars(picture, views.BARS_MAX),
            segments=used.segments[-views.SEGMENTS_MAX :],
            pins=self._store.pins(),
            store=store_numbers(opened_of(self._store)),
        )

    def health(self, _request: Request) -> Response:
        """For a monitor: the store can be read, and no sync failed."""
        why = store_trouble(opened_of(self._store))
        if why:
            return JSONResponse({"status": "failed", "message": why}, 503)
        return JSONResponse({"status": "ok"})

    def asset(self, request: Request) -> Response:
        """A style sheet, a script or the icon."""
        name = request.path_params["name"]
        if name not in ASSETS:
            return self.page("error", 404, message="there is no such page")
        data = (files("logstore.web") / "templates" / name).read_bytes()
        return Response(data, media_type=ASSETS[name])

    def failed(self, _request: Request, error: Exception) -> Response:
        """A page for an error."""
        gone = StreamNotFoundError | EntryNotFoundError
        status = 404 if isinstance(error, gone) else 503
        status = 400 if isinstance(error, UsageError) else status
        return self.page("error", status, message=str(error))

    def missing(self, _request: Request, _error: Exception) -> Response:
        """A page for an address that does not exist."""
        return self.page("error", 404, message="there is no such page")


def make_app(
    store: Store[bytes], *, write: bool = False, hosts: tuple[str, ...] = (), token: str = ""
) -> Starlette:
    """The application, for any server that runs ASGI.

    Args:
        store: an open store, opened without ``readonly`` if ``write``; the caller closes it.
        write: whether entries can be deleted and dead letters be tried again.
        hosts: names and addresses that a request may be for; empty: any.
        token: what a browser must show; empty: nothing, and then nothing can be changed.

    Returns:
        An application of Starlette.
    """
    pages = Pages(store, write=write)
    get: list[tuple[str, Callable[[Request], Response]]] = [
        ("/", pages.streams),
        ("/stream", pages.stream),
        ("/entry", pages.entry),
        ("/value", pages.value),
        ("/dead", pages.dead),
        ("/segments", pages.segments),
        ("/doctor", pages.doctor),
        ("/health", pages.health),
        ("/assets/{name}", pages.asset),
    ]
    post = [("/drop", pages.drop), ("/retry", pages.retry)]
    routes = [Route(path, page, methods=["GET"]) for path, page in get]
    return Starlette(
        routes=[*routes, *(Route(path, page, methods=["POST"]) for path, page in post)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=Guard(hosts, token))],
        exception_handlers={Error: pages.failed, 404: pages.missing, 405: pages.missing},
    )


GRACE_S = 5
BACKLOG = 128


class Server:
    """One store, served to browsers."""

    def __init__(self, store: Store[bytes], host: str, port: int, token: str, *, write: bool):
        """Set what is served, and on which address.

        Args:
            store: an open store; the caller closes it.
            host: the address to listen on.
            port: 0: any free one.
            token: what a browser must show; empty: nothing.
            write: whether something can be changed.
        """
        self._host, self._port, self._token = host, port, token
        hosts = LOOPBACK if host in LOOPBACK else ()
        app = make_app(store, write=write, hosts=hosts, token=token)
        self._config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=GRACE_S, server_header=False
        )
        self._socket: socket.socket | None = None

    def bind(self) -> None:
        """Listen; OSError if the address cannot be had."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server(
            (self._host, self._port), family=family, backlog=BACKLOG
        )
        self._port = self._socket.getsockname()[1]

    def address(self) -> str:
        """The address to open in a browser, with the token if there is one."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        token = f"?token={self._token}" if self._token else ""
        return f"http://{host}:{self._port}/{token}"

    def run(self) -> None:
        """Serve until a signal comes."""
        assert self._socket is not None
        uvicorn.Server(self._config).run(sockets=[self._socket])
