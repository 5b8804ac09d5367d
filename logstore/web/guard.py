"""Which requests are let in: by the token, the hosts that they may name, the origin of a change.

Any page that the user opens elsewhere can reach a page on the loopback interface: it can make the
browser send requests here, and can call this host by a name of its own.

Invariants: a request whose Host is not expected is refused before anything else. With a token
nothing is shown without it. A change (any method but GET and HEAD) needs a token that the server
was started with, and an Origin that is this host. Tokens are compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from html import escape
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

Next: TypeAlias = Callable[[Request], Awaitable[Response]]

COOKIE = "logstore_token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    # With "no-referrer" a browser sends the Origin "null" with a change, which would be refused.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
REFUSAL = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Not possible · logstore</title>
<h1>Not possible</h1>
<p>{}</p>
</html>
"""


class Guard:
    """Decides on each request before a page sees it."""

    def __init__(self, hosts: tuple[str, ...], token: str) -> None:
        """Set whom to let in.

        Args:
            hosts: names and addresses that a request may be for; empty: any.
            token: what must be shown once; empty: nothing, and then nothing can be changed.
        """
        self._hosts = hosts
        self._token = token

    async def __call__(self, request: Request, call_next: Next) -> Response:
        """The page's response, with headers that keep other pages out; or a refusal."""
        response = self._refusal(request)
        if response is None:
            given = request.query_params.get("token")
            if given is not None and self._token:
                response = self._enter(request)
            else:
                response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if self._hosts and _name(host) not in self._hosts:
            return _refused(
                "this server does not answer under that name: use the address that it printed", 421
            )
        if self._token and not self._known(request):
            return _refused(
                "a token is needed: open the address that 'logstore web' printed, with ?token=...",
                403,
            )
        if request.method not in {"GET", "HEAD"}:
            origin = request.headers.get("origin", "")
            if not self._token or origin.partition("://")[2] != host:
                return _refused("a change must come from a page of this server", 403)
        return None

    def _known(self, request: Request) -> bool:
        given = request.query_params.get("token") or request.cookies.get(COOKIE, "")
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _enter(self, request: Request) -> Response:
        """Keep the token in a cookie, and take it out of the address that the browser shows."""
        rest = request.url.remove_query_params("token")
        response = RedirectResponse(rest.path + (f"?{rest.query}" if rest.query else ""), 303)
        response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return response


def _refused(message: str, status: int) -> Response:
    """A page that needs no other file, for phones and dark screens, too."""
    return HTMLResponse(REFUSAL.format(escape(message, quote=False)), status)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
