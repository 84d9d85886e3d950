"""Metrics of the webhooks, with the names of Koordinator.

Source:
    manager spec, 17.1
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from koord_manager.domain.admission.webhooks import WEBHOOKS

BUCKETS: Final = tuple(0.001 * 2**power for power in range(20))


_RESOURCES: Final = frozenset(webhook.resource.partition("/")[0] for webhook in WEBHOOKS)
_OTHER: Final = "other"
"""Label for unknown resources, because each text of a client would be a new series."""


class WebhookMetrics:
    """Prometheus metrics of the webhooks: numbers and durations of requests by kind of object and decision."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # the reference observes seconds despite the name
        self.duration = Histogram(
            "koord_manager_webhook_webhook_duration_milliseconds",
            "Duration of one decision, in seconds",
            ["webhook_type", "object_type", "operation", "plugin_name", "status"],
            registry=registry,
            buckets=BUCKETS,
        )
        self._durations: dict[tuple[str, ...], Histogram] = {}
        self.shared_weight = Gauge(
            "koord_manager_webhook_quota_shared_weight",
            "Default shared weight of a quota",
            ["elasticquota_name", "resource_name"],
            registry=registry,
        )
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
        """Count one webhook request with its decision and duration.

        Args:
            kind: "mutate" or "validate".
            resource: Plural of the object's kind.
            operation: Operation of the request, such as CREATE.
            plugin: First step or rule that decided.
            status: "allowed" or "rejected".
            seconds: Duration.
        """
        labels = kind, resource if resource in _RESOURCES else _OTHER, operation, plugin, status
        kept = self._durations.get(labels)
        if kept is None:
            kept = self._durations[labels] = self.duration.labels(*labels)
        kept.observe(seconds)
