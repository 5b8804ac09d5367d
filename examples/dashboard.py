"""A dashboard: how many entries came in each minute of the last hour, and how far the groups are.

    pip install '.[web]'        # in a clone
    DASHBOARD=shop.store uvicorn dashboard:app

It only reads, beside the processes that write. Counting costs the same however long the history is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import logstore

PAGE = """<!doctype html><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Dashboard</title>
<style>
body { font: 15px system-ui; margin: 2em auto; padding: 0 1em; max-width: 60em }
h3 { font-size: 1em; margin: 1.2em 0 .3em; overflow-wrap: anywhere }
:root { color-scheme: light dark }
svg { width: 100%; height: 4em; background: #8881 } rect { fill: #0072b2 }
td, th { text-align: right; padding: .2em 1em } td:first-child, th:first-child { text-align: left }
</style>
<h1>The last hour</h1><div id="streams"></div>
<h2>Groups</h2><table id="groups"></table>
<script>
function text(tag, words, parent) {
  const made = document.createElement(tag)
  made.textContent = words
  parent.append(made)
}
function bars(minutes) {
  const most = Math.max(1, ...minutes), name = 'http://www.w3.org/2000/svg'
  const picture = document.createElementNS(name, 'svg')
  picture.setAttribute('viewBox', '0 0 60 10')
  picture.setAttribute('preserveAspectRatio', 'none')
  minutes.forEach((count, at) => {
    const bar = document.createElementNS(name, 'rect'), height = 10 * count / most
    for (const [key, value] of Object.entries({x: at + .1, y: 10 - height, width: .8, height}))
      bar.setAttribute(key, value)
    picture.append(bar)
  })
  return picture
}
async function show() {
  const found = await (await fetch('/data')).json()
  streams.replaceChildren()
  for (const each of found.streams) {
    text('h3', `${each.name}: ${each.entries.toLocaleString()} entries`, streams)
    streams.append(bars(each.minutes))
  }
  groups.replaceChildren()
  const rows = [['group', 'lag', 'pending'], ...found.groups.map(each =>
    [`${each.stream} / ${each.name}`, each.lag ?? 'unknown', each.pending])]
  rows.forEach((row, at) => {
    const line = groups.insertRow()
    row.forEach(words => text(at ? 'td' : 'th', words, line))
  })
  setTimeout(show, 2000)
}
show()
</script>"""
STREAMS_MAX = 20


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open the store with the application, to read it."""
    path = os.environ.get("DASHBOARD", "shop.store")
    with logstore.open(path, encoding="utf-8", readonly=True) as store:
        app.state.store = store
        yield


def page(_request: Request) -> Response:
    """The page."""
    return HTMLResponse(PAGE)


def data(request: Request) -> Response:
    """What the page asks for every two seconds; in a thread, as a plain function."""
    store, now = request.app.state.store, datetime.now(UTC).replace(second=0, microsecond=0)
    begins = [now - timedelta(minutes=back) for back in range(59, -1, -1)]
    found: dict[str, list[Any]] = {"streams": [], "groups": []}
    for name in store.streams()[:STREAMS_MAX]:
        stream = store.stream(name)
        minutes = [
            stream.count(begin, begin + timedelta(minutes=1, milliseconds=-1)) for begin in begins
        ]
        shown = text(name)
        found["streams"].append({"name": shown, "entries": len(stream), "minutes": minutes})
        for group in stream.groups():
            told = {"name": text(group.name), "lag": group.lag, "pending": group.pending}
            found["groups"].append({"stream": shown, **told})
    return JSONResponse(found)


def text(name: str) -> str:
    """A name for JSON: it may have bytes that are no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


app = Starlette(routes=[Route("/", page), Route("/data", data)], lifespan=lifespan)
