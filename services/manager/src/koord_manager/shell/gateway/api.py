"""Client of the API server, with the configuration and credentials of kubernetes-asyncio.

Watches, and all requests through a proxy, use its transport. Other requests use `http_connections`, which costs a tenth
of the CPU time. Bodies are bytes, which `reading` reads with msgspec. Each request waits for the rate limit. Without
an answer, a request raises `Unreachable`. Any answer is returned, whatever its status.

Source:
    manager spec, 2.2 (rest-config-qps, rest-config-burst); libraries: Kubernetes API
"""

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from koordcore.service.leader.lease import LeaseUnavailable
from koordcore.values import codec

from koord_manager.domain.gateway.requests import REQUEST_SECONDS, Request
from koord_manager.shell.gateway.http_connections import HttpConnections

if TYPE_CHECKING:
    import aiohttp

LIST_SECONDS = 120.0
CREDENTIALS_AGAIN_SECONDS = 5.0
"""Minimum time between two refreshes of credentials after a 401."""
_URL_SAFE: Final = "/:@!$&'()*+,;=-._~%"
_IS_URL_SAFE: Final = re.compile(rf"[\w{re.escape(_URL_SAFE)}]*", re.ASCII).fullmatch


class Unreachable(Exception):
    """Raised if the API server did not answer, so that it is unknown whether a write took effect."""


class ApiResponse(NamedTuple):
    status: int  # HTTP status; 0 stands for no answer (`send`)
    body: bytes
    retry_after: float | None = None  # Header Retry-After in seconds, or None if it is absent
    date: str = ""  # Header Date, the time of the answer by the server's clock; "" if it is absent

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def answered_at(self) -> datetime | None:
        """Return the header Date in whole seconds, or None if it is absent or not valid."""
        try:
            return parsedate_to_datetime(self.date)
        except ValueError:
            return None

    def message(self) -> str:
        """Return the message of the Status object in the body, or the beginning of another body."""
        try:
            document: object = json.loads(self.body)
        except ValueError:
            return self.body[:200].decode(errors="replace")
        if isinstance(document, dict):
            return str(cast("dict[str, object]", document).get("message", ""))
        return ""


class RateLimit:
    """Token bucket with `burst` tokens that refills with `qps` tokens per second; waiters are served in order."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._room = float(self._burst)
        self._filled_at: float | None = None
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a token and take it; no-op if the rate is not limited (`qps` is 0 or less)."""
        if self._qps <= 0:
            return
        async with self._turn:
            loop = asyncio.get_running_loop()
            now = loop.time()
            passed = now - self._filled_at if self._filled_at is not None else 0.0
            self._room = min(self._burst, self._room + passed * self._qps)
            self._filled_at = now
            if self._room < 1:
                await asyncio.sleep((1 - self._room) / self._qps)
                self._room = 1.0
                self._filled_at = loop.time()
            self._room -= 1


class KubernetesApi:
    """Requests to one API server; all methods may be called concurrently.

    Args:
        configuration: kubernetes_asyncio.client.Configuration with host and credentials.
        qps: Maximum number of requests per second (0: no limit), `burst` at once; the same again for Kubernetes events.
        refresh: Fetches new credentials after a 401, or None if they refresh themselves.
    """

    def __init__(
        self,
        configuration: Any,
        *,
        qps: float = 30.0,
        burst: int = 50,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        from kubernetes_asyncio.client.rest import RESTClientObject

        self._configuration = configuration
        self._rest: Any = RESTClientObject(configuration, maxsize=100)
        self._connections = None if _uses_proxy(configuration) else _connections(configuration)
        self._limit = RateLimit(qps, burst)
        # Of their own, so that a burst of bindings and a burst of events do not delay each other.
        self._limit_of_events = RateLimit(qps, burst)
        self._refresh = refresh
        self._refreshed_at = float("-inf")

    @property
    def host(self) -> str:
        return str(self._configuration.host)

    async def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
        await self._rest.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        seconds: float = REQUEST_SECONDS,
        limited: bool = True,
    ) -> ApiResponse:
        """Send a request (once more after a 401, with new credentials) and return its response, whatever its status.

        Args:
            body: JSON value, or None for no body.
            limited: Whether the request waits for the rate limit; requests of leader elections do not. Kubernetes
                events have a rate limit of their own.

        Raises:
            Unreachable: There is no answer, so it is unknown whether a write took effect.
        """
        import aiohttp  # here, and the client itself in `connect_api`: without Kubernetes neither is loaded

        if limited:
            await (self._limit_of_events if _is_about_events(path) else self._limit).take()
        for attempt in range(2):
            try:
                async with asyncio.timeout(seconds):
                    answer = await self._ask(method, path, parameters, body, content_type, seconds)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
            if answer.status != 401 or attempt or not await self._fresh_credentials():
                return answer
        raise AssertionError("not reached")

    async def _ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        body: object,
        content_type: str,
        seconds: float,
    ) -> ApiResponse:
        if self._connections is None:
            response = await self._send(method, path, parameters, body, content_type, seconds)
            return ApiResponse(
                response.status,
                await response.read(),
                _retry_after(response.headers.get("Retry-After", "")),
                response.headers.get("Date", ""),
            )
        headers = "".join(f"{name}: {text}\r\n" for name, text in (await self._headers(content_type)).items())
        target = path if _IS_URL_SAFE(path) else quote(path, safe=_URL_SAFE)
        if parameters:
            target += "?" + urlencode(parameters)
        encoded = b"" if body is None else codec.encode(body)
        found = await self._connections.request(method, target, headers.encode("latin-1"), encoded)
        return ApiResponse(
            found.status,
            found.body,
            _retry_after(found.headers.get(b"retry-after", b"").decode("latin-1")),
            found.headers.get(b"date", b"").decode("latin-1"),
        )

    @contextlib.asynccontextmanager
    async def lines(
        self, path: str, parameters: Mapping[str, str], *, idle_seconds: float
    ) -> AsyncGenerator[ApiResponse | AsyncIterator[list[bytes]]]:
        """Open a watch, and yield an iterator of its lines in batches as they arrive.

        If the API server answers with an error, yield the response instead.

        Args:
            idle_seconds: If no line arrives for this time, the watch is closed.

        Raises:
            Unreachable: The API server does not answer, or the stream broke.
        """
        import aiohttp

        await self._limit.take()
        timeout = aiohttp.ClientTimeout(total=None, connect=REQUEST_SECONDS, sock_read=idle_seconds)
        try:
            response = await self._send("GET", path, parameters, None, "application/json", timeout)
            try:
                if response.status != 200:
                    retry_after = _retry_after(response.headers.get("Retry-After", ""))
                    answer = ApiResponse(response.status, await response.read(), retry_after)
                    if answer.status == 401:
                        await self._fresh_credentials()
                    yield answer
                else:
                    yield _lines(response)
            finally:
                response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"WATCH {path}: {type(error).__name__}: {error}") from error

    async def _send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        body: object,
        content_type: str,
        timeout: "float | aiohttp.ClientTimeout",
    ) -> "aiohttp.ClientResponse":
        url = f"{self._configuration.host}{path}"
        if parameters:
            url += "?" + urlencode(parameters)
        return cast(
            "aiohttp.ClientResponse",
            await self._rest.request(
                method,
                url,
                headers=await self._headers(content_type),
                body=body,
                _preload_content=False,
                _request_timeout=timeout,
            ),
        )

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "koord-manager"}
        for setting in (await self._configuration.auth_settings()).values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        return headers

    async def _fresh_credentials(self) -> bool:
        """Fetch new credentials, and return whether they may differ from the refused ones."""
        now = asyncio.get_running_loop().time()
        if self._refresh is None or now - self._refreshed_at < CREDENTIALS_AGAIN_SECONDS:
            return False
        self._refreshed_at = now
        await self._refresh()
        return True


async def send(api: KubernetesApi, request: Request) -> ApiResponse:
    """Send a write to the API server and return the response. If the server does not answer, the status is 0."""
    try:
        return await api.request(
            request.method,
            request.path,
            body=request.body,
            content_type=request.content_type,
            parameters=dict(request.parameters) or None,
        )
    except Unreachable as error:
        return ApiResponse(0, codec.encode({"message": str(error)}))


async def _lines(response: "aiohttp.ClientResponse") -> AsyncIterator[list[bytes]]:
    """Yield complete lines as they arrive; their length is not limited, because an object may have megabytes."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        if whole:
            yield [line for line in whole if line]
    if rest:
        yield [rest]


def _retry_after(text: str) -> float | None:
    """Return the seconds in a header Retry-After; None if it is empty or a date."""
    return float(text) if text.isascii() and text.isdigit() else None


def _uses_proxy(configuration: Any) -> bool:
    """Return whether requests to the API server go through a proxy, which a kubeconfig or the environment names."""
    url = urlsplit(str(configuration.host))
    return bool(configuration.proxy) or (url.scheme in getproxies() and not proxy_bypass(url.netloc))


def _connections(configuration: Any) -> HttpConnections:
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return HttpConnections(str(configuration.host), tls, str(configuration.tls_server_name or ""))


async def connect_api(kubeconfig: Path | None, *, context: str = "", qps: float, burst: int) -> KubernetesApi:
    """Return a client of an API server with the credentials of a kubeconfig or of the pod.

    Args:
        kubeconfig: Path of the kubeconfig, or None for the service account of the pod.
        context: Context of the kubeconfig, or empty for the current one.
        qps: Maximum number of requests per second, or 0 for no limit.

    Raises:
        Unreachable: There are no credentials.
    """
    import kubernetes_asyncio.client
    import kubernetes_asyncio.config

    config: Any = kubernetes_asyncio.config  # untyped
    settings: Any = kubernetes_asyncio.client.Configuration()
    if kubeconfig is None:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException as error:
            raise Unreachable(f"not in a cluster, and no kubeconfig is set: {error}") from error
        return KubernetesApi(settings, qps=qps, burst=burst)

    async def load() -> None:
        try:
            await config.load_kube_config(
                config_file=str(kubeconfig),
                context=context or None,
                client_configuration=settings,
                persist_config=False,
            )
        except (config.ConfigException, OSError) as error:
            raise Unreachable(f"kubeconfig {kubeconfig}: {error}") from error

    await load()
    return KubernetesApi(settings, qps=qps, burst=burst, refresh=load)


def _is_about_events(path: str) -> bool:
    return path.partition("/namespaces/")[2].split("/")[1:2] == ["events"]


class LeaseHttp:
    """Sends the requests of leader election through a `KubernetesApi`, without its rate limit."""

    def __init__(self, api: KubernetesApi, *, seconds: float = 5.0) -> None:
        self._api = api
        self._seconds = seconds

    async def request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send a JSON body (None: no body), and return HTTP status and body. See `KubernetesHttp.request`."""
        document: object = json.loads(body) if body is not None else None
        try:
            answer = await self._api.request(method, path, body=document, seconds=self._seconds, limited=False)
        except Unreachable as error:
            raise LeaseUnavailable(str(error)) from error
        return answer.status, answer.body
