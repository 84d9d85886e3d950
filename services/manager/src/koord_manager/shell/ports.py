"""Serve metrics and health at the additional addresses of Koordinator, and publish whether this instance leads.

Source:
    manager spec, 2.1, 2.2, 17.1
"""

from typing import TypeVar

from koordcore.ports.leadership import Leadership
from koordcore.service.access.gate import sees_names
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.web.http import HttpServer
from koordcore.values.invalid import InvalidInput
from prometheus_client import Gauge
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_manager.settings import KubernetesSettings

S = TypeVar("S", bound=KubernetesSettings)

_OFF = ("", "0")


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of a text `host:port`. The host of `:port` stands for every address of the machine.

    Raises:
        InvalidInput: The text is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput("host:port or :port", text)
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what `:port` means


def add_ports(shell: Shell[S], leadership: Leadership) -> list[HttpServer]:
    """Add the servers of `--metrics-addr` and `--health-probe-addr`, and the metric of leadership.

    Returns:
        The added servers; none for an address that is switched off.
    """
    settings = shell.settings
    leads = Gauge("koordinator_manager_is_leader", "Whether this instance leads.", registry=shell.metrics.registry)
    leads.set_function(lambda: 1.0 if leadership.term is not None else 0.0)
    servers: list[HttpServer] = []
    for purpose, address in settings.further_ports.items():
        name = f"{purpose}-port"
        if address in _OFF:
            continue
        host, port = parse_address(address)
        server = HttpServer(
            settings.model_copy(update={"http_host": host, "http_port": port, "http_client_ca_file": None}),
            service=shell.service,
            health=shell.health,
            metrics=shell.metrics,
            clock=shell.clock,
        )
        server.routes.extend(_metrics_routes(shell))
        shell.service.add(Component(name=name, start=server.start, run=server.run, stop=server.stop))
        servers.append(server)
    return servers


def _metrics_routes(shell: Shell[S]) -> list[Route]:
    """Return further paths of the metrics page, with the names that Koordinator uses."""

    async def every(request: Request) -> Response:
        accept, with_names = request.headers.get("accept", ""), sees_names(request.scope)
        body, content_type = await shell.metrics.render(accept, with_names=with_names)
        return Response(body, headers={"content-type": content_type})

    async def none(_: Request) -> Response:
        return Response(b"", media_type="text/plain")

    return [Route("/all-metrics", every), Route("/internal-metrics", every), Route("/external-metrics", none)]
