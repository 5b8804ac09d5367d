"""One request of a plain client."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit


def ask(
    address: str, target: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of one request."""
    place = urlsplit(address)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    connection.request(method, target, headers={"Host": place.netloc, **headers})
    answer = connection.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}
    text = answer.read().decode()
    connection.close()
    return answer.status, told, text
