"""Choose the gate of a service's HTTP server from its settings.

    auto     open on a loopback address without an access file, closed otherwise
    open     everybody may do everything
    closed   only known subjects; without an access file, only public routes answer

Modules with joserfc and httpx are imported only where access is closed with an access file.
"""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from koordcore.service.access.gate import IDENTITY, AuditTrail, Gate, OpenGate
from koordcore.service.access.needs import Identity
from koordcore.service.clock import SystemClock
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics

_log: Final = logger("service.access")


class Opened(NamedTuple):
    """An opened access gate of an HTTP server, with its routes below `/auth`."""

    gate: Gate
    routes: list[BaseRoute]


async def whoami(request: Request) -> Response:
    """Handle `GET /auth/whoami`: return the subject and the roles of the sender."""
    identity = request.scope[IDENTITY]
    assert isinstance(identity, Identity)
    answer = {"subject": identity.subject, "roles": sorted(identity.roles)}
    return JSONResponse(answer, headers={"cache-control": "no-store"})


WHOAMI: Final = Route("/auth/whoami", whoami, methods=["GET"])


def open_gate(settings: ServiceSettings, metrics: Metrics, audit: AuditTrail, *, is_loopback: bool) -> Opened:
    """Return the gate that the settings choose.

    Raises:
        InvalidInput: The access file is not valid.
    """
    if settings.is_open(is_loopback=is_loopback):
        return Opened(OpenGate(audit, metrics.http_refusals), [WHOAMI])
    from koordcore.service.access.authentication import Authentication
    from koordcore.service.access.closed_gate import ClosedGate
    from koordcore.service.access.configuration import LiveAccess
    from koordcore.service.access.login import Login

    clock = SystemClock()
    if settings.http_access_file is None:
        _log.warning("http_access_closed", reason="http_access_file is not set: only public routes answer")
        return Opened(ClosedGate(None, clock=clock, audit=audit, refusals=metrics.http_refusals), [WHOAMI])
    authentication = Authentication(LiveAccess(settings.http_access_file), clock)
    if settings.http_cert_file is None and not is_loopback:
        _log.warning("http_tokens_without_tls", reason="http_cert_file is not set: serve behind a proxy with TLS")
    gate = ClosedGate(authentication, clock=clock, audit=audit, refusals=metrics.http_refusals)
    return Opened(gate, [WHOAMI, *Login(authentication).routes()])
