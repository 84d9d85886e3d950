"""The HTTP server of a process: `/healthz`, `/readyz`, `/metrics` and the service's own routes.

It is Starlette on uvicorn with httptools, in the event loop of the service. It listens on loopback by default. With a
certificate it uses TLS, and reads the certificate again when it is rotated. `connections` and `http_protocol` limit
connections and heads of requests. Then the guard checks every request: host name, size of the body, time until the
answer begins, whether the service is stopping, and whether the sender has the role that the route needs
(`koordcore.service.access`). If a handler raises `InvalidInput`, the answer is 400 with field, rule and value. Handlers
for JSON documents that arrive hundreds of times a second are in `HttpServer.posts`; the guard calls them without
Starlette.
"""

import asyncio
import errno
import ipaddress
import json
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from koordcore.ports.clock import Clock
from koordcore.retry import Backoff, retry
from koordcore.service.access.gate import AuditTrail, sees_names
from koordcore.service.access.opening import open_gate
from koordcore.service.health import CheckResult, Health
from koordcore.service.lifecycle import Service
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.web.certificate import Certificate
from koordcore.service.web.connections import Limits
from koordcore.service.web.http_guard import Guard, JsonPost, refusal_of
from koordcore.service.web.web_server import WebServer, bind_to
from koordcore.values.invalid import InvalidInput

_log: Final = logger("service.http")

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
ANSWER_SECONDS: Final = 60.0
MAX_REQUESTS: Final = 960  # Fewer than the connections of a server, so that probes always find a free one
CERTIFICATE_LOOK_SECONDS: Final = 10.0
# Time for which the start waits for a port that is in use, for example by the process before this one.
PORT_SECONDS: Final = 10.0
_SUITES_OF_1_3: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class HttpServer:
    """HTTP server of a service: probes, metrics and the service's routes. It runs as a component: `start`, `run`,
    `stop`.

    Args:
        service: While it is stopping, requests other than probes get status 503.
        health: Checks behind `/healthz` (also `/livez`) and `/readyz`.
        metrics: Registry behind `/metrics`.
        max_body_bytes: A request with a longer body is refused with status 413.
        answer_seconds: Real seconds until an answer must have begun, else status 503. The answer itself may take
            longer.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        service: Service,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        max_body_bytes: int = MAX_BODY_BYTES,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.routes: list[BaseRoute] = []  # Routes of the service. Add to it before `start`.
        # Path -> handler of JSON documents that are posted there. Add to it before `start`.
        self.posts: dict[str, JsonPost] = {}
        self.max_body_bytes = max_body_bytes
        self.answer_seconds = answer_seconds
        self.most_requests = MAX_REQUESTS  # Requests in hand; more get status 503, but for probes
        self.limits = Limits()
        self._settings = settings
        self._service = service
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._server: WebServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port: int | None = None
        self._certificate: Certificate | None = None
        # Takes the records of who asked what.
        self.audit = AuditTrail(settings.service, f"{settings.service}/{settings.instance}", clock)

    @property
    def port(self) -> int:
        """Port of the server. Only available after `start`."""
        assert self._port is not None, "the server has not been started"
        return self._port

    @property
    def url(self) -> str:
        """Base URL for clients on this host. Only available after `start`."""
        host = self._settings.http_host
        if host in ("0.0.0.0", "::", ""):  # noqa: S104  every address includes the loopback one
            host = "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._certificate else 'http'}://{shown}:{self.port}"

    def serve_at(self, host: str, port: int) -> None:
        """Serve at another address than that of the settings. Call it before `start`."""
        self._settings = self._settings.model_copy(update={"http_host": host, "http_port": port})

    @property
    def is_serving(self) -> bool:
        return self._serving is not None and not self._serving.done()

    def reload_certificate(self) -> bool:
        """Load the certificate files again if they changed. Return whether they were loaded. If the changed files are
        not valid, this is logged, and the old certificate stays in use.
        """
        return self._certificate is not None and self._certificate.reload_when_rotated()

    def app(self) -> ASGIApp:
        """Return the ASGI application: probes and the service's routes, with all checks of requests.

        Raises:
            InvalidInput: The access file is not valid.
        """
        probes: list[BaseRoute] = [
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/livez", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
            Route("/metrics", self._metrics_page, methods=["GET"]),
        ]
        settings = self._settings
        opened = open_gate(settings, self._metrics, self.audit, is_loopback=is_loopback(settings.http_host))
        app = Starlette(routes=[*probes, *opened.routes, *self.routes], exception_handlers={InvalidInput: _refuse})
        return Guard(
            app,
            self.posts,
            service=self._service,
            gate=opened.gate,
            metrics=self._metrics,
            hosts=_allowed_hosts(self._settings),
            max_body_bytes=self.max_body_bytes,
            answer_seconds=self.answer_seconds,
            most_requests=self.most_requests,
        )

    async def start(self) -> None:
        """Listen on the port and begin to accept requests.

        Raises:
            OSError: The address is still in use after 10 s, or the certificate cannot be read.
            InvalidInput: The access file is not valid.
        """
        settings = self._settings
        if settings.http_cert_file is not None:
            self._certificate = Certificate(_tls_context(settings), settings.http_cert_file, settings.http_key_file)
        listener = await _bind_patiently(settings.http_host, settings.http_port)
        self._port = listener.getsockname()[1]
        certificate = self._certificate
        self._server = WebServer(
            self.app(),
            grace_seconds=settings.shutdown_grace / 2,
            tls=None if certificate is None else certificate.context,
            limits=self.limits,
            refused=lambda reason: self._metrics.http_refusals.labels(reason).inc(),
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        began = asyncio.create_task(self._server.began.wait())
        await asyncio.wait((self._serving, began), return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        if self._serving.done():
            self._serving.result()
            raise OSError("the HTTP server ended while it started")
        _log.info("http_listening", url=self.url, tls=certificate is not None)

    async def run(self) -> None:
        """Reload rotated certificates until the server has stopped."""
        assert self._serving is not None, "the server has not been started"
        watching = asyncio.create_task(self._watch_certificate())
        try:
            await asyncio.shield(self._serving)
        finally:
            watching.cancel()

    async def stop(self) -> None:
        """Accept no more connections, and finish current requests. After half of the grace period, cancel them."""
        if self._server is not None and self._serving is not None:
            self._server.end()
            await asyncio.shield(self._serving)

    async def _watch_certificate(self) -> None:
        while self._certificate is not None:
            await self._clock.sleep(CERTIFICATE_LOOK_SECONDS)
            self._certificate.reload_when_rotated()

    async def _healthz(self, request: Request) -> Response:
        return _answer(request, self._health.liveness())

    async def _readyz(self, request: Request) -> Response:
        return _answer(request, self._health.readiness())

    async def _metrics_page(self, request: Request) -> Response:
        accept, with_names = request.headers.get("accept", ""), sees_names(request.scope)
        page, content_type = await self._metrics.render(accept, with_names=with_names)
        return Response(page, headers={"content-type": content_type})


def _tls_context(settings: ServiceSettings) -> ssl.SSLContext:
    """Return the TLS context of the server, still without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    is_newest = settings.tls_min_version == "VersionTLS13"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_newest else ssl.TLSVersion.TLSv1_2
    if names := cipher_names(settings.tls_cipher_suites):
        context.set_ciphers(names)
    if settings.http_client_ca_file is not None:
        context.load_verify_locations(settings.http_client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def cipher_names(suites: Sequence[str]) -> str:
    """Return the list of ciphers of TLS 1.2 for OpenSSL; "" for its own choice. `suites`: names of cipher suites in Go,
    such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. Those of TLS 1.3 are left out, because they cannot be chosen in Go
    either.

    Raises:
        InvalidInput: There is no such suite.
    """
    names: list[str] = []
    for suite in suites:
        if suite in _SUITES_OF_1_3:
            continue
        name = suite.removeprefix("TLS_").removesuffix("_SHA256" if "CHACHA20" in suite else "")
        name = (
            name.replace("_WITH", "").replace("AES_", "AES").replace("_CBC", "").removeprefix("RSA_").replace("_", "-")
        )
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
        except ssl.SSLError as error:
            raise InvalidInput("cipher suites of TLS 1.2 by their names in Go", suite, "tls_cipher_suites") from error
        names.append(name)
    return ":".join(names)


async def _bind_patiently(host: str, port: int) -> socket.socket:
    async def bind() -> socket.socket:
        return bind_to(host, port)

    def note(error: Exception, delay: float) -> None:
        _log.warning("port_in_use", error=str(error), retry_seconds=round(delay, 1))

    return await retry(
        bind,
        OSError,
        backoff=Backoff(0.1, 2.0),
        deadline_seconds=PORT_SECONDS,
        retry_if=lambda error: isinstance(error, OSError) and error.errno == errno.EADDRINUSE,
        on_retry=note,
    )


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or an address of the loopback interface."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allowed_hosts(settings: ServiceSettings) -> frozenset[str] | None:
    """Return the host names that requests may use; None: any. On a loopback address, only loopback names are allowed.
    So a web page whose name resolves to 127.0.0.1 (DNS rebinding) cannot send requests from a user's browser.
    """
    if settings.http_allowed_hosts:
        return frozenset(name.lower() for name in settings.http_allowed_hosts) | _LOOPBACK_NAMES
    return _LOOPBACK_NAMES | {settings.http_host.lower()} if is_loopback(settings.http_host) else None


def _answer(request: Request, results: Sequence[CheckResult]) -> Response:
    failed = [result for result in results if not result.ok]
    status = 503 if failed else 200
    if "verbose" in request.query_params:
        checks = [{"name": result.name, "ok": result.ok, "reason": result.reason} for result in results]
        page = json.dumps({"status": "failed" if failed else "ok", "checks": checks}, indent=2) + "\n"
        return Response(page, status, media_type="application/json")
    text = "".join(f"{result.name}: {result.reason}\n" for result in failed) or "ok\n"
    return PlainTextResponse(text, status)


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInput)
    return refusal_of(error)
