"""Metrics of the gateway.

Source:
    event-bus spec, 12 (koord_bus_drift_total); manager spec, 17.1
"""

from collections.abc import Callable, Mapping

from koordcore.service.telemetry.metrics import BusMetrics
from prometheus_client import CollectorRegistry, Counter, Gauge

from koord_manager.shell.gateway.listwatch import WatchFigures


class GatewayMetrics:
    """The events that the gateway counts; this base class counts nothing."""

    def written(self, purpose: str, meaning: str) -> None:
        """Count the answer to a write."""

    def watches(self, figures: Mapping[str, WatchFigures]) -> None:
        """Set the figures of lists and watches."""

    def drifted(self, kind: str) -> None:
        """Count a difference between the fold and the API server."""

    def failed(self, part: str) -> None:
        """Count an object that failed in `ingest`, `outbox`, `events`, `reports`, `sweep` or `pending-writes`."""


NO_GATEWAY_METRICS = GatewayMetrics()


class PrometheusGatewayMetrics(GatewayMetrics):
    """Metrics of the gateway on `/metrics`.

    Args:
        wrote: Also called for each write, with its purpose and the meaning of its answer.
    """

    def __init__(
        self, registry: CollectorRegistry, bus: BusMetrics, wrote: Callable[[str, str], None] = lambda _, __: None
    ) -> None:
        self._wrote = wrote
        self._bus = bus  # it has the counter of drifts already
        self._writes = Counter(
            "koord_gateway_writes", "Writes to the API server, by answer.", ("purpose", "answer"), registry=registry
        )
        self._failures = Counter(
            "koord_gateway_failures", "Number of objects that failed.", ("part",), registry=registry
        )
        self._lists = Gauge(
            "koord_gateway_lists", "Lists of a resource in this term.", ("resource",), registry=registry
        )
        self._synced = Gauge(
            "koord_gateway_synced", "1 if the resource has been listed in this term.", ("resource",), registry=registry
        )
        self._errors = Gauge(
            "koord_gateway_watch_errors",
            "Lists and watches that failed in this term.",
            ("resource",),
            registry=registry,
        )
        self._unreadable = Gauge(
            "koord_gateway_unreadable_objects", "Objects that could not be read.", ("resource",), registry=registry
        )

    def failed(self, part: str) -> None:
        """See `GatewayMetrics.failed`."""
        self._failures.labels(part).inc()

    def written(self, purpose: str, meaning: str) -> None:
        """See `GatewayMetrics.written`."""
        self._writes.labels(purpose, meaning).inc()
        self._wrote(purpose, meaning)

    def watches(self, figures: Mapping[str, WatchFigures]) -> None:
        """See `GatewayMetrics.watches`."""
        for resource, item in figures.items():
            self._lists.labels(resource).set(item.lists)
            self._synced.labels(resource).set(item.is_synced)
            self._errors.labels(resource).set(item.errors)
            self._unreadable.labels(resource).set(item.unreadable)

    def drifted(self, kind: str) -> None:
        """See `GatewayMetrics.drifted`."""
        self._bus.drift(kind)
