"""The web view of a store: addresses, and the pages behind them.

Invariants: a page reads in a thread of the framework's pool, never in the event loop; an error of
logstore is a page with its message and a status, never a traceback; what is shown of a store is
escaped by the templates. It changes nothing but what ``write`` permits.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from logstore import __version__
from logstore.api import units
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.errors import EntryNotFoundError, Error, StreamNotFoundError, UsageError
from logstore.telemetry import health
from logstore.web import views
from logstore.web.guard import Guard

ASSETS = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
PAGE_MAX = 1_000_000


def _moment(ms: int) -> str:
    """Unix milliseconds, for people."""
    return units.date(units.at(ms))


class Pages:
    """What each address answers, of one store."""

    def __init__(self, store: Store[bytes], *, write: bool) -> None:
        self._store = store
        self._path = str(opened_of(store).path)
        self._write = write
        self._templates = Environment(
            loader=PackageLoader("logstore.web"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., str]] = {
            "ago": units.ago,
            "counted": units.counted,
            "date": units.date,
            "moment": _moment,
            "share": units.share,
            "size": units.size,
            "span": units.length,
            "text": plain_text,
        }
        self._templates.filters.update(filters)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page made of a template."""
        html = self._templates.get_template(f"{template}.html").render(
            page=template,
            path=self._path,
            version=__version__,
            write=self._write,
            **values,
        )
        return HTMLResponse(html, status)

    def streams(self, request: Request) -> Response:
        """All streams."""
        text = request.query_params.get("q", "")
        number = request.query_params.get("page", "1")
        page = min(int(number), PAGE_MAX) if number.isdecimal() else 1
        found = views.stream_list(self._store, text, page)
        return self.page("streams", found=found, text=text, store=views.numbers(self._store))

    def _named(self, request: Request) -> Stream[bytes]:
        """The stream that an address names; StreamNotFoundError."""
        name = views.name_of(request.query_params.get("name", ""))
        stream = self._store.stream(name)
        if stream.name not in self._store:
            raise StreamNotFoundError("there is no stream of this name", stream=name)
        return stream

    def stream(self, request: Request) -> Response:
        """One stream: its entries by time, and its groups."""
        stream = self._named(request)
        asked = {name: request.query_params.get(name, "") for name in ("since", "until", "before")}
        rows, older = views.entries(stream, **asked)
        return self.page(
            "stream",
            name=plain_text(stream.name),
            key=views.key_of(stream.name),
            info=stream.info(),
            rows=rows,
            older=older,
            asked=asked,
            groups=views.group_rows(stream),
        )

    def dead(self, _request: Request) -> Response:
        """The streams of dead letters."""
        found = [
            (row, views.entries(self._store.stream(views.name_of(row.key)), "", "", "")[0])
            for row in views.dead_letter_streams(self._store)
        ]
        return self.page("dead", found=found)

    def _changed(self, request: Request) -> tuple[Stream[bytes], str]:
        """The stream and the ID that a change is about; UsageError if nothing may be changed."""
        if not self._write:
            raise UsageError("this server only shows: start it with --write to change something")
        return self._named(request), request.query_params.get("id", "")

    def drop(self, request: Request) -> Response:
        """Delete a dead letter."""
        stream, entry_id = self._changed(request)
        stream.delete(entry_id)
        return RedirectResponse("/dead", 303)

    def retry(self, request: Request) -> Response:
        """Give a dead letter back to the stream that it came from."""
        stream, entry_id = self._changed(request)
        self._store.requeue(stream.name, entry_id)
        return RedirectResponse("/dead", 303)

    def segments(self, _request: Request) -> Response:
        """The segments, as a map."""
        used = views.used(self._store)
        return self.page(
            "segments",
            used=used,
            segments=used.segments[-views.SEGMENTS_MAX :],
            pins=self._store.pins(),
            store=views.numbers(self._store),
        )

    def health(self, _request: Request) -> Response:
        """For a monitor: the store can be read, and no sync failed."""
        trouble = health.trouble(opened_of(self._store))
        if trouble:
            return JSONResponse({"status": "failed", "message": trouble}, 503)
        return JSONResponse({"status": "ok"})

    def asset(self, request: Request) -> Response:
        """A style sheet or a script of ours."""
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
        """A page for an address that there is none for."""
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
        ("/dead", pages.dead),
        ("/segments", pages.segments),
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
