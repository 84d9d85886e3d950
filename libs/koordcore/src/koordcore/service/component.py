"""Parts of services that use the log, and of those that stand for a component of Kubernetes, such as a scheduler.

A Deployment that was written for such a component starts the service unchanged: its flags without effect are accepted.
The compose function of a service calls `add_bus` before it adds what uses the log. Because the HTTP server is the first
component of every service, it answers while this one waits for the NATS server.

Source: descheduler spec, 2; scheduler-core spec, 14.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import Field

from koordcore.bus.factory import Bus, connect_bus, unconnected_bus
from koordcore.service.bus import ElectedSettings, bus_settings
from koordcore.service.flags import FlagSpec, klog_flags, without_effect
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.settings import Flag, ServiceSettings
from koordcore.service.web.http import HttpServer

_NO_API_SERVER: Final = "the service uses the log, not an API server"
_ACCESS: Final = "see --http-access-file, which says who may send requests"
_LOGS: Final = "logs are always written to stderr, one line per event"
_ONE_VERSION: Final = "a service has the behavior of one version"
_KEPT: Final = "all metrics are shown, with their labels"

Address = tuple[str, int]


class ComponentSettings(ElectedSettings):
    """Settings of a service that stands for a component of Kubernetes."""

    address: str = Field("0.0.0.0", description="Address for --port.")  # noqa: S104  as in the component
    plain_port: Annotated[int, Flag("port")] = Field(
        10251,
        ge=0,
        le=65535,
        description="Port to serve on, if neither --http-host nor --http-port is given; 0: see --http-port. Only "
        "--address or --port switch it on.",
    )
    bind_address: str = Field("0.0.0.0", description="Address for --secure-port.")  # noqa: S104  as in the component
    secure_port: int = Field(
        0, ge=0, le=65535, description="Further port, with TLS, if --tls-cert-file is given; 0: none."
    )
    tls_cert_file: Path | None = Field(None, description="Certificate of --secure-port. Reloaded on rotation.")
    tls_private_key_file: Path | None = Field(None, description="Key of the certificate of --secure-port.")

    idle_flags: ClassVar[Sequence[FlagSpec]] = (
        *without_effect("leader-elect-resource-lock", "the lease is a key of the log"),
        *without_effect("leader-elect-resource-name leader-elect-resource-namespace", "the lease is a key of the log"),
        *without_effect("cert-dir", "without --tls-cert-file, there is no secure port"),
        *without_effect("tls-sni-cert-key", "there is one certificate"),
        *without_effect("http2-max-streams-per-connection", "the server does not use HTTP/2"),
        *without_effect("permit-address-sharing permit-port-sharing", "the port is not shared", is_bool=True),
        *without_effect(
            """authentication-kubeconfig authentication-token-webhook-cache-ttl authorization-kubeconfig
            authorization-always-allow-paths authorization-webhook-cache-authorized-ttl
            authorization-webhook-cache-unauthorized-ttl requestheader-allowed-names requestheader-client-ca-file
            requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers
            requestheader-username-headers""",
            _ACCESS,
        ),
        *without_effect(
            "client-ca-file",
            "a certificate gives no role, see --http-access-file; --http-client-ca-file requires one of each client",
        ),
        *without_effect("authentication-skip-lookup authentication-tolerate-lookup-failure", _ACCESS, is_bool=True),
        *without_effect("master kubeconfig kube-api-qps kube-api-burst kube-api-content-type", _NO_API_SERVER),
        *klog_flags(_LOGS),
        *without_effect("log-flush-frequency log-json-info-buffer-size log-text-info-buffer-size", _LOGS),
        *without_effect("log-json-split-stream log-text-split-stream", _LOGS, is_bool=True),
        *without_effect("disable-http2-serving", "the server does not use HTTP/2", is_bool=True),
        *without_effect("emulated-version min-compatibility-version", _ONE_VERSION),
        *without_effect("emulation-forward-compatible", _ONE_VERSION, is_bool=True),
        *without_effect(
            "allow-metric-labels allow-metric-labels-manifest disabled-metrics show-hidden-metrics-for-version", _KEPT
        ),
        *without_effect("profiling contention-profiling", "see enableProfiling of the configuration", is_bool=True),
    )

    @property
    def plain_addresses(self) -> list[Address]:
        """Return the address of `--address` and `--port`; none if neither of them is given, or the port is 0."""
        is_given = {"address", "plain_port"} & self.model_fields_set
        return [(self.address, self.plain_port)] if is_given and self.plain_port else []


S = TypeVar("S", bound=ComponentSettings)


def serve_as_component(shell: Shell[S], plain: Sequence[Address]) -> list[HttpServer]:
    """Serve at the addresses of a component of Kubernetes, and return the added servers. If `--http-host` or
    `--http-port` is given, the service's own server uses it, and all of `plain` is ignored. Otherwise it serves at the
    first of `plain`, and each further address gets a server of its own. If `--tls-cert-file` and `--secure-port` are
    given, one more server with TLS is added.

    `shell`: the service, whose HTTP server has not been started. `plain`: Addresses without TLS of their own. Equal
    ones are one server. Empty: that of `--http-host`.

    Returns:
        The servers besides the service's own. They share its routes, and start and stop with the service.
    """
    settings = shell.settings
    further: list[tuple[dict[str, Path | None], Address]] = []
    if plain and not {"http_host", "http_port"} & settings.model_fields_set:
        first, *others = dict.fromkeys(plain)
        shell.http.serve_at(*first)
        further.extend(({}, address) for address in others)
    if settings.tls_cert_file is not None and settings.secure_port:
        own = {"http_cert_file": settings.tls_cert_file, "http_key_file": settings.tls_private_key_file}
        further.append((own, (settings.bind_address, settings.secure_port)))
    elif "secure_port" in settings.model_fields_set and settings.secure_port:
        shell.log.warning("configuration_without_effect", path="--secure-port", why="--tls-cert-file is not given")
    servers: list[HttpServer] = []
    for certificate, (host, port) in further:
        server = HttpServer(
            settings.model_copy(update={**certificate, "http_client_ca_file": None}),
            service=shell.service,
            health=shell.health,
            metrics=shell.metrics,
            clock=shell.clock,
        )
        server.serve_at(host, port)
        server.routes, server.audit = shell.http.routes, shell.http.audit
        shell.service.add(Component(name=f"http-{port}", start=server.start, run=server.run, stop=server.stop))
        servers.append(server)
    return servers


Settings = TypeVar("Settings", bound=ServiceSettings)


def add_bus(shell: Shell[Settings]) -> Bus:
    """Return the adapters of the log, and add the component to the service that connects them. Components that are
    added later start when a NATS server answers and the stream of facts exists, however long that takes. Until then,
    the service is alive and not ready, and logs the reason after delays that grow. The service ends only if an operator
    has to act, because the server refuses it or is too old.

    Raises:
        InvalidName: The cluster id contains characters that a subject cannot have.
        PlaceTrouble: The place of the archive does not exist.
    """
    settings = replace(bus_settings(shell.settings), connect_seconds=None)
    bus = unconnected_bus(settings, metrics=shell.metrics.bus)
    assert bus.connection is not None, "a bus of a server has a connection"
    connected = shell.health.readiness_condition("bus", f"not connected to {', '.join(settings.urls)} yet")

    def waits(reason: str) -> None:
        connected.unmet(reason)
        shell.log.warning("bus_away", reason=reason)

    async def connect() -> None:
        await connect_bus(bus, settings, waits)
        connected.met()

    shell.service.add(Component(name="bus", start=connect, close=bus.connection.drain_and_close))
    return bus
