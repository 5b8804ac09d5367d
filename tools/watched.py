"""Those who watch ``logstore serve``: the service manager, and Prometheus over HTTP.

Invariants: what they are told is read from the service in threads of their own; the event loop is
asked one thing, whether it turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.api.opening import opened_of
from logstore.loading import load
from logstore.telemetry import health
from logstore.telemetry.family import Family, one
from logstore.telemetry.gathering import gather
from logstore.tools.service_manager import ServiceManager

if TYPE_CHECKING:
    from logstore.tools.metrics_endpoint import MetricsEndpoint
    from logstore.wire.service import Service

TURN_S = 5.0  # an event loop that does not turn for so long is not healthy


class Watched:
    """What a server tells, and to whom.

    Args:
        manager: the service manager.
        metrics_host: where Prometheus asks.
        metrics_port: None: it does not ask.
    """

    def __init__(
        self, manager: ServiceManager, metrics_host: str, metrics_port: int | None
    ) -> None:
        self.manager = manager
        self.metrics_host = metrics_host
        self.metrics_port = 0  # of the endpoint, 0: there is none
        self._wanted_port = metrics_port
        self._endpoint: MetricsEndpoint | None = None

    def begin(self, service: Service, end: asyncio.Event) -> None:
        """Answer Prometheus from now on, if that was asked for; called in the event loop.

        Raises:
            FileSystemError: the address cannot be listened on.
        """
        if self._wanted_port is None:
            return
        module = load("logstore.tools.metrics_endpoint")  # an HTTP server is not loaded for nothing
        loop = asyncio.get_running_loop()
        endpoint: MetricsEndpoint = module.MetricsEndpoint(
            self.metrics_host,
            self._wanted_port,
            lambda: families(service),
            lambda: trouble(service, loop),
            lambda: not end.is_set(),
        )
        self._endpoint, self.metrics_port = endpoint, endpoint.port

    def close(self) -> None:
        """Answer no more."""
        if self._endpoint is not None:
            self._endpoint.close()


def families(service: Service) -> list[Family]:
    """The numbers of the server and of its stores; of several each with its number as a label."""
    stores = [(str(number), database.store) for number, database in service.databases.items()]
    found: dict[str, Family] = {}
    for number, store in stores:
        for family in gather(opened_of(store)):
            if len(stores) > 1:
                family.labels = ("database", *family.labels)
                family.samples = [((number, *at), value) for at, value in family.samples]
            if family.name in found:
                found[family.name].samples += family.samples
            else:
                found[family.name] = family
    return [*found.values(), *_of_server(service)]


def _of_server(service: Service) -> Iterator[Family]:
    counts, clients = service.counts, list(service.clients.values())
    blocked = sum(client.unblock is not None for client in clients)
    yield one("logstore_server_clients", "Clients that are connected.", len(clients))
    yield one("logstore_server_blocked_clients", "Of them, those that wait.", blocked)
    yield one("logstore_server_clients_max", "As many may be.", service.clients_max)
    yield one("logstore_server_connections", "Connections taken.", counts.connections, "counter")
    yield one("logstore_server_rejected", "Connections refused.", counts.rejected, "counter")
    yield one("logstore_server_commands", "Commands done.", counts.commands, "counter")
    errors = Family("logstore_server_errors", "Replies that are errors.", ("code",), "counter")
    for code, number in list(counts.errors.items()):
        errors.add(number, code)
    yield errors


def trouble(service: Service, loop: asyncio.AbstractEventLoop) -> str:
    """Why the service does not do its work; empty: it does."""
    for database in service.databases.values():
        if found := health.trouble(opened_of(database.store)):
            return found
    turned = threading.Event()
    loop.call_soon_threadsafe(turned.set)
    return "" if turned.wait(TURN_S) else f"the event loop did not turn for {TURN_S:g} s"
