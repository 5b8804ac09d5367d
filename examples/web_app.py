"""A web application: messages are posted, and come to all browsers as server-sent events.

    pip install '.[web]'        # in a clone
    uvicorn web_app:app --workers 2

Each worker process opens the store by itself; what is posted to one comes to the browsers of all. A
browser that lost its connection says which message it saw last, and misses none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import logstore.aio

PAGE = """<!doctype html><title>Messages</title>
<form onsubmit="return send()"><input id="text" autofocus>
<button>Send</button></form><ol id="list"></ol>
<script>
function send() {
  fetch('/messages', {method: 'POST', body: text.value})
  text.value = ''
  return false
}
new EventSource('/events').onmessage = event => {
  const line = document.createElement('li')
  line.textContent = JSON.parse(event.data).text
  list.append(line)
}
</script>"""
QUIET_S = 15.0  # then a comment is sent, so that a connection that is gone is noticed


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open the store with the application, and close it with it."""
    path = os.environ.get("WEB_APP", "messages.store")
    async with logstore.aio.open(path, encoding="utf-8") as store:
        app.state.messages = store.stream("messages")
        yield


async def page(_request: Request) -> Response:
    """The page with the form and the list."""
    return HTMLResponse(PAGE)


async def post(request: Request) -> Response:
    """Add a message; its ID."""
    text = (await request.body()).decode("utf-8", "replace")
    id = await request.app.state.messages.add({"text": text}, max_entries=10_000)
    return JSONResponse({"id": str(id)}, status_code=201)


async def events(request: Request) -> Response:
    """Server-sent events: all messages, or those behind the last one that the browser saw."""
    messages = request.app.state.messages
    after = request.headers.get("Last-Event-ID", "0")

    async def lines() -> AsyncIterator[str]:
        last = after
        while True:
            async for message in messages.follow(last, timeout=QUIET_S):
                last = str(message.id)
                yield f"id: {last}\ndata: {json.dumps({'text': message['text']})}\n\n"
            yield ": nothing new\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


app = Starlette(
    routes=[
        Route("/", page),
        Route("/messages", post, methods=["POST"]),
        Route("/events", events),
    ],
    lifespan=lifespan,
)
