"""Metrics of the webhooks, with the names of the reference.

source    manager spec, 17.1
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from koord_manager.domain.admission.webhooks import WEBHOOKS

BUCKETS: Final = tuple(0.001 * 2**power for power in range(20))


_RESOURCES: Final = frozenset(webhook.resource.partition("/")[0] for webhook in WEBHOOKS)
_OTHER: Final = "other"
"""Of another resource only the client's text is known, and each would be a new series."""


class WebhookMetrics:
    """What the webhook server counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # the reference observes seconds despite the name
        self.duration = Histogram(
            "koord_manager_webhook_webhook_duration_milliseconds",
            "Time to decide one request, in seconds",
            ["webhook_type", "object_type", "operation", "plugin_name", "status"],
            registry=registry,
            buckets=BUCKETS,
        )
        self._durations: dict[tuple[str, ...], Histogram] = {}
        self.shared_weight = Gauge(
            "koord_manager_webhook_quota_shared_weight",
            "Shared weight of a quota as defaulted",
            ["elasticquota_name", "resource_name"],
            registry=registry,
        )
        self.binding_decisions = Counter(
            "koord_manager_webhook_binding_admission_decisions",
            "Judged bindings by decision",
            ["decision"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "koord_manager_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends",
            registry=registry,
        )

    def decided(self, kind: str, resource: str, operation: str, plugin: str, status: str, *, seconds: float) -> None:
        """One request was decided. What is looked up for the labels of `duration` is kept."""
        labels = kind, resource if resource in _RESOURCES else _OTHER, operation, plugin, status
        kept = self._durations.get(labels)
        if kept is None:
            kept = self._durations[labels] = self.duration.labels(*labels)
        kept.observe(seconds)
