"""Prometheus metrics of runtime hooks.

Source: runtime spec, 2.11.
"""

from prometheus_client import CollectorRegistry, Histogram

from koord_agent.domain.hook_stages.stages import Stage

BUCKETS = tuple(0.01 * 4**power for power in range(8))
"""Upper ends of the buckets in milliseconds."""


class ReconcilerMetrics:
    """Prometheus metric: duration of the reconcilers that set what other modes of runtime hooks missed."""

    def __init__(self, registry: CollectorRegistry, node: str) -> None:
        self._node = node
        self._milliseconds = Histogram(
            "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
            "Duration of one reconciler of runtime hooks",
            ["node", "level", "resource_type", "status"],
            registry=registry,
            buckets=BUCKETS,
        )

    def observe(self, level: str, resource: str, *, is_ok: bool, seconds: float) -> None:
        """Record one run of a reconciler. See `ObserveReconciler`."""
        status = "succeeded" if is_ok else "failed"
        self._milliseconds.labels(self._node, level, resource, status).observe(seconds * 1000)


class HookMetrics:
    """Prometheus metric: duration of the plug-ins of a stage."""

    def __init__(self, registry: CollectorRegistry, node: str) -> None:
        self._node = node
        self._milliseconds = Histogram(
            "koordlet_runtime_hook_invoked_duration_milliseconds",
            "Duration of one plug-in at a stage of a pod or container",
            ["node", "hook", "stage", "status"],
            registry=registry,
            buckets=BUCKETS,
        )

    def observe(self, hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None:
        """Record one run of a plug-in. It is called from the thread that ran it. See `ObserveHook`."""
        status = "succeeded" if is_ok else "failed"
        self._milliseconds.labels(self._node, hook, stage.value, status).observe(seconds * 1000)
