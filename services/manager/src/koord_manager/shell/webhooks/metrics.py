"""Metrics of the webhooks, with the names of the reference.

source    manager spec, 17.1
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS: Final = tuple(0.001 * 2**power for power in range(20))


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

    def decided(self, *labels: str, seconds: float) -> None:
        """One request was decided. labels: of `duration`, in its order; what is looked up for them is kept"""
        kept = self._durations.get(labels)
        if kept is None:
            kept = self._durations[labels] = self.duration.labels(*labels)
        kept.observe(seconds)
