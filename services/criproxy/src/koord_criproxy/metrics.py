"""Metrics of the CRI proxy.

Source: runtime spec, 5.8 (names).
"""

from koordcore.service.telemetry.metrics import Metrics
from prometheus_client import Counter, Gauge, Histogram

from koord_criproxy.outbox import ProxyOutbox
from koord_criproxy.records import Store

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0)

_KNOWN = ("/runtime.v1.", "/docker/")


class ProxyMetrics:
    def __init__(self, metrics: Metrics, store: Store) -> None:
        registry = metrics.registry
        self._calls = Counter("koord_runtimeproxy_calls", "Calls by answer", ["method", "result"], registry=registry)
        self._seconds = Histogram(
            "koord_runtimeproxy_call_duration_seconds",
            "Time that the proxy and hooks added to an intercepted call",
            ["method"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._hooks = Histogram(
            "koord_runtimeproxy_hook_duration_seconds",
            "Time until a hook server answered",
            ["hook", "result"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._errors = Counter("koord_runtimeproxy_hook_errors", "Failed hooks", ["hook", "policy"], registry=registry)
        records = Gauge("koord_runtimeproxy_store_records", "Remembered objects", ["kind"], registry=registry)
        records.labels("sandbox").set_function(lambda: len(store.pods))
        records.labels("container").set_function(lambda: len(store.containers))
        self._waiting = Gauge("koord_runtimeproxy_facts_waiting", "Facts that wait for the log", registry=registry)
        self._dropped = Gauge("koord_runtimeproxy_facts_dropped", "Facts dropped since the start", registry=registry)

    def watch(self, outbox: ProxyOutbox) -> None:
        self._waiting.set_function(lambda: len(outbox))
        self._dropped.set_function(lambda: outbox.dropped)

    def called(self, method: str, result: str, added_seconds: float) -> None:
        """Count one call. `added_seconds`: time that the proxy and hooks added; 0 for a forwarded call.

        `method` is a gRPC path, or `/docker/` with the kind of request. Only its last part becomes a label, and paths
        of unknown services count as `other`. `result`: name of the gRPC status, or the HTTP status.
        """
        name = method.rpartition("/")[2] if method.startswith(_KNOWN) else "other"
        self._calls.labels(name, result).inc()
        if added_seconds:
            self._seconds.labels(name).observe(added_seconds)

    def hook_asked(self, rpc: str, policy: str, error: str, seconds: float) -> None:
        """`error` is "" if the call succeeded."""
        hook = rpc.removesuffix("Hook")
        self._hooks.labels(hook, "failed" if error else "succeeded").observe(seconds)
        if error:
            self._errors.labels(hook, policy).inc()
