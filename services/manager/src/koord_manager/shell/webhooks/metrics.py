"""Metrics of the webhooks, with the names of Koordinator.

Source:
    manager spec, 17.1
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from koordcore.service.telemetry.metrics import SeriesLifetime
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koord_manager.domain.admission.webhooks import WEBHOOKS

BUCKETS: Final = tuple(0.001 * 2**power for power in range(20))


_RESOURCES: Final = frozenset(webhook.resource.partition("/")[0] for webhook in WEBHOOKS)
_OTHER: Final = "other"
"""Label for unknown resources, because each text of a client would be a new series."""


class QuotaWeights(Collector):
    """The default shared weights of the quotas that the webhook has seen, without those that do not exist any more.

    Args:
        exists: Whether the fold has a quota of a name.
        now: Returns the seconds of a monotonic clock.
    """

    def __init__(self, exists: Callable[[str], bool], now: Callable[[], float]) -> None:
        self._lifetime = SeriesLifetime[str](exists, self._remove, now)
        self._gauge = Gauge(
            "koord_manager_webhook_quota_shared_weight",
            "Default shared weight of a quota",
            ["elasticquota_name", "resource_name"],
            registry=None,
        )
        self._resources: dict[str, frozenset[str]] = {}
        """Name of a quota -> the resources that have a weight."""

    def set(self, quota: str, weights: Mapping[str, float]) -> None:
        self._remove(quota)
        if weights:
            for resource, weight in weights.items():
                self._gauge.labels(quota, resource).set(weight)
            self._resources[quota] = frozenset(weights)
            self._lifetime.touch(quota)

    def describe(self) -> Iterable[Metric]:
        return self._gauge.describe()

    def collect(self) -> Iterable[Metric]:
        self._lifetime.forget_gone()
        return self._gauge.collect()

    def _remove(self, quota: str) -> None:
        for resource in self._resources.pop(quota, frozenset[str]()):
            self._gauge.remove(quota, resource)


class WebhookMetrics:
    """Prometheus metrics of the webhooks: numbers and durations of requests by kind of object and decision.

    Args:
        has_quota: Whether the fold has a quota of a name.
        now: Returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        has_quota: Callable[[str], bool] = lambda _: True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # the reference observes seconds despite the name
        self.duration = Histogram(
            "koord_manager_webhook_webhook_duration_milliseconds",
            "Duration of one decision, in seconds",
            ["webhook_type", "object_type", "operation", "plugin_name", "status"],
            registry=registry,
            buckets=BUCKETS,
        )
        self._durations: dict[tuple[str, ...], Histogram] = {}
        self.shared_weights = QuotaWeights(has_quota, now)
        registry.register(self.shared_weights)
        self.binding_decisions = Counter(
            "koord_manager_webhook_binding_admission_decisions",
            "Validated bindings, by decision",
            ["decision"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "koord_manager_webhook_certificate_expiry_timestamp_seconds",
            "Expiry of the serving certificate, in unix seconds",
            registry=registry,
        )

    def decided(self, kind: str, resource: str, operation: str, plugin: str, status: str, *, seconds: float) -> None:
        """Count one request. `kind`: "mutate" or "validate"; `status`: "allowed" or "rejected".

        `plugin` is the first step or rule that decided.
        """
        labels = kind, resource if resource in _RESOURCES else _OTHER, operation, plugin, status
        kept = self._durations.get(labels)
        if kept is None:
            kept = self._durations[labels] = self.duration.labels(*labels)
        kept.observe(seconds)
