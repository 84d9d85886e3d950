"""Metrics of the gateway.

Source:
    event-bus spec, 12 (koord_bus_drift_total); manager spec, 17.1
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from koord_manager.shell.gateway.listwatch import WatchFigures

SWEPT: Final = ("pods", "nodes")
"""Resources whose objects the gateway compares with the fold."""


class GatewayMetrics:
    """Prometheus metrics of the gateway.

    Args:
        registry: Registry whose metrics the service publishes; None: the metrics are not published.
        wrote: Called for each write, with its purpose and the meaning of its answer.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        wrote: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        gauge = partial(Gauge, registry=registry)
        self._wrote = wrote
        self._drift = Counter(
            "koord_bus_drift", "Differences between the fold and the API server", ("kind",), registry=registry
        )
        for resource in SWEPT:  # `increase` sees no first difference of a series that begins with it
            self._drift.labels(resource)
        self._writes = Counter(
            "koord_gateway_writes", "Writes to the API server, by answer.", ("purpose", "answer"), registry=registry
        )
        self._scales = Counter(
            "koord_gateway_scale_reads", "Reads of scales of controllers, by answer.", ("answer",), registry=registry
        )
        self._failures = Counter(
            "koord_gateway_failures", "Number of objects that failed.", ("part",), registry=registry
        )
        self._delayed = Counter(
            "koord_gateway_changes_delayed",
            "Versions of objects that had to wait for the budget of their namespace.",
            registry=registry,
        )
        self._waiting = gauge(
            "koord_gateway_changes_waiting", "Objects with a change that waits for the budget of their namespace."
        )
        self._lists = gauge("koord_gateway_lists", "Lists of a resource in this term.", ("resource",))
        self._synced = gauge("koord_gateway_synced", "1 if the resource has been listed in this term.", ("resource",))
        self._errors = gauge("koord_gateway_watch_errors", "Lists and watches that failed in this term.", ("resource",))
        self._unreadable = gauge("koord_gateway_unreadable_objects", "Objects that could not be read.", ("resource",))

    def delayed(self) -> None:
        """Count a version of an object that has to wait for the budget of its namespace."""
        self._delayed.inc()

    def drifted(self, resource: str) -> None:
        """Count an object of a resource, one of `SWEPT`, that differs between the fold and the API server."""
        self._drift.labels(resource).inc()

    def failed(self, part: str) -> None:
        """Count an error about one object in a part of the gateway.

        Args:
            part: `ingest`, `outbox`, `events`, `reports`, `scales`, `sweep` or `pending-writes`.
        """
        self._failures.labels(part).inc()

    def written(self, purpose: str, meaning: str) -> None:
        """Count a write to the API server. `purpose`: name of the write (`Request.purpose`)."""
        self._writes.labels(purpose, meaning).inc()
        self._wrote(purpose, meaning)

    def scale_read(self, meaning: str) -> None:
        self._scales.labels(meaning).inc()

    def waiting(self, objects: int) -> None:
        self._waiting.set(objects)

    def watches(self, figures: Mapping[str, WatchFigures]) -> None:
        """Set the metrics about each resource (by name): whether it was listed in this term, and its numbers."""
        for resource, item in figures.items():
            self._lists.labels(resource).set(item.lists)
            self._synced.labels(resource).set(item.is_synced)
            self._errors.labels(resource).set(item.errors)
            self._unreadable.labels(resource).set(item.unreadable)
