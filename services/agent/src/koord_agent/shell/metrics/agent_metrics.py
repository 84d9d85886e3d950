"""Prometheus metrics of the agent and its hooks, with Koordinator's names where they exist, and their two extra pages.

`/external-metrics` has those of pods and their resources, `/internal-metrics` all others, as in Koordinator's agent.

Source: agent spec, 1, 19, 21; runtime spec, 2.11.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from koordcore.events.envelope import Event
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded, PodsEvictedByAgent
from koordcore.service.access.gate import sees_names
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.metrics import without_names
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_agent.domain.extending.extension_points import Point
from koord_agent.domain.hooks.call import Stage

MOST_NODES: Final = 16
"""Largest number of nodes of a process for which metrics per node are exported."""
MOST_EVICTED: Final = 500
"""Largest number of evicted pods with their own counter."""

MOST_DISTURBED: Final = 1_000
"""Largest number of interference states (by pod and signal)."""
BUCKETS = tuple(0.01 * 4**power for power in range(8))
"""Upper ends of the buckets in milliseconds."""
EXTERNAL: Final = frozenset(
    f"koordlet_{name}"
    for name in (
        "node_resource_allocatable",
        "node_priority_resource_reclaimable",
        "node_resource_priority_reclaimable_status",
        "container_resource_requests",
        "container_resource_limits",
        "container_cpi",
        "container_psi",
        "pod_psi",
        "resctrl_llc_occupancy",
        "resctrl_memory_bandwidth",
        "tsdb_series",
        "tsdb_size_bytes",
    )
)


class AgentMetrics:
    """Prometheus metrics of the agent's process: start, plans, facts and outbox."""

    def __init__(self, registry: CollectorRegistry, nodes: int) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self._per_node = nodes <= MOST_NODES
        self._start = gauge("koordlet_start_time", "Start time of the agent in seconds since the epoch", ["node"])
        self._plans = counter("koordlet_qos_plan", "Plans of strategies by result", ["plugin", "result"])
        self._evictions = counter("koordlet_pod_eviction", "Pods evicted by this process", ["node", "reason"])
        self._evicted = counter(
            "koordlet_pod_eviction_detail",
            "Pods evicted by this process, by name",
            ["node", "pod_namespace", "pod_name", "reason"],
        )
        self._evicted_of: dict[tuple[str, str, str, str], None] = {}
        self._interference = gauge("koordlet_interference_contentions", "Ongoing contentions by signal", ["kind"])
        self._states = gauge(
            "koordlet_interference_state",
            "1 while a pod is disturbed in this signal, 0 afterwards",
            ["node", "pod_uid", "kind"],
        )
        self._disturbed: dict[tuple[str, str, str], None] = {}
        self.nodes = gauge("koord_agent_nodes", "Nodes of this process")
        self.nodes.set(nodes)
        self.pods = gauge("koord_agent_running_pods", "Running pods on the nodes of this process")
        self.cycle_seconds = Histogram(
            "koord_agent_cycle_seconds",
            "Seconds of one cycle over all nodes",
            registry=registry,
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
        )
        self.reports = counter("koord_agent_reports", "Published usage reports")
        self.problems = counter("koord_agent_problems", "Problems of node cycles")
        self._outbox = gauge("koord_agent_outbox_facts", "Facts in the outbox that are not in the log yet")
        self._refused = gauge("koord_agent_outbox_refused", "Facts that the full outbox refused")
        self._left_out = gauge("koord_agent_outbox_left_out", "Facts that are too large for the log and were left out")

    def started(self, node: str, unix: float) -> None:
        if self._per_node:
            self._start.labels(node).set(unix)

    def protected(self, node: str, plans: Mapping[tuple[str, str], int], facts: Iterable[Event]) -> None:
        """`plans` is (strategy, result) -> number."""
        for (plugin, result), number in plans.items():
            self._plans.labels(plugin, result).inc(number)
        for fact in facts:
            match fact:
                case PodsEvictedByAgent():
                    self._evictions.labels(node if self._per_node else "", fact.feature).inc(len(fact.pods))
                    if self._per_node:
                        self._count_evicted(node, fact)
                case InterferenceDetected():
                    self._interference.labels(fact.signal).inc()
                    self._disturb((node, fact.pod_uid, fact.signal), 1)
                case InterferenceEnded():
                    self._interference.labels(fact.signal).dec()
                    self._disturb((node, fact.pod_uid, fact.signal), 0)
                case _:
                    pass

    def _disturb(self, labels: tuple[str, str, str], state: int) -> None:
        """Above the limit, the oldest states are dropped."""
        if not self._per_node:
            return
        self._states.labels(*labels).set(state)
        self._disturbed.pop(labels, None)
        self._disturbed[labels] = None
        while len(self._disturbed) > MOST_DISTURBED:
            oldest = next(iter(self._disturbed))
            del self._disturbed[oldest]
            self._states.remove(*oldest)

    def _count_evicted(self, node: str, fact: PodsEvictedByAgent) -> None:
        """By name of the pod. Above the limit, the oldest counters are dropped."""
        for pod in fact.pods:
            labels = (node, pod.namespace, pod.name, fact.feature)
            self._evicted.labels(*labels).inc()
            self._evicted_of.pop(labels, None)
            self._evicted_of[labels] = None
        while len(self._evicted_of) > MOST_EVICTED:
            oldest = next(iter(self._evicted_of))
            del self._evicted_of[oldest]
            self._evicted.remove(*oldest)

    def watch(self, outbox: Callable[[], int], refused: Callable[[], int], left_out: Callable[[], int]) -> None:
        """The functions are called when metrics are scraped; `left_out` counts facts that the log never accepts."""
        self._outbox.set_function(outbox)
        self._refused.set_function(refused)
        self._left_out.set_function(left_out)


class KubeletRequests:
    """Prometheus metric (agent spec, 4.3, 21)."""

    def __init__(self, registry: CollectorRegistry, node: str) -> None:
        self._node = node
        self._seconds = Histogram(
            "koordlet_kubelet_request_duration_seconds",
            "Duration of requests to the kubelet",
            ["node", "verb", "path", "code"],
            registry=registry,
            buckets=tuple(0.001 * 4**power for power in range(7)),
        )

    def observe(self, verb: str, path: str, status: int, seconds: float) -> None:
        """Called from the thread that made the request. Status 0 means no answer."""
        self._seconds.labels(self._node, verb, path, str(status)).observe(seconds)


class ExtensionFailures(Collector):
    """Prometheus metric: number of failures of each extension, read when metrics are scraped."""

    def __init__(self, failures: Mapping[tuple[Point, str], int]) -> None:
        self._failures = failures

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "koord_agent_extension_failures", "Failures of extensions of installed packages", labels=["point", "name"]
        )
        for (point, name), number in sorted(self._failures.items()):
            family.add_metric([point, name], number)
        yield family


class ResourceUpdates:
    """Prometheus metric: duration of writes to kernel files (agent spec, 9, 21)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._milliseconds = Histogram(
            "koordlet_resource_update_duration_milliseconds",
            "Duration of writes to kernel files",
            ["type", "status"],
            registry=registry,
            buckets=tuple(0.01 * 4**power for power in range(8)),
        )

    def observe(self, resource: str, written: bool, seconds: float) -> None:
        """Called from the thread that wrote. `resource` is the name on cgroup v1."""
        self._milliseconds.labels(resource, "success" if written else "failed").observe(seconds * 1000)


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
        """Called from the thread that ran the plug-in."""
        status = "succeeded" if is_ok else "failed"
        self._milliseconds.labels(self._node, hook, stage.value, status).observe(seconds * 1000)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemLog:
    """Logs and counts the problems of the nodes of one process. A problem that lasts is logged once.

    Each source of a node, such as its cycle, tells its own problems. So a source neither ends nor repeats the problems
    of another one.
    """

    logger: Logger
    metrics: AgentMetrics
    _last: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict[tuple[str, str], frozenset[str]])

    def tell(self, node: str, problems: Iterable[str], *, of: str) -> None:
        """Log and count the problems that a source did not have when it told its problems last.

        `problems` are all present ones. A problem that a source no longer tells has healed. If it comes back, it is
        logged again. `of` is the source: `pods`, `cycle`, `report`, `farewell` or `close`.
        """
        present = dict.fromkeys(problems)
        last = self._last.pop((node, of), frozenset[str]())
        if present:
            self._last[node, of] = frozenset(present)
        for problem in present:
            if problem not in last:
                self.metrics.problems.inc()
                self.logger.warning("node_problem", node=node, source=of, problem=problem)


class _Half(Collector):
    def __init__(self, registry: CollectorRegistry, *, external: bool, with_names: bool) -> None:
        self._registry = registry
        self._external = external
        self._with_names = with_names

    def collect(self) -> Iterable[Metric]:
        half = [family for family in self._registry.collect() if (family.name in EXTERNAL) is self._external]
        return half if self._with_names else without_names(half)


def metrics_routes(registry: CollectorRegistry) -> list[Route]:
    def page(request: Request, *, external: bool) -> Response:
        half = CollectorRegistry(auto_describe=False)
        half.register(_Half(registry, external=external, with_names=sees_names(request.scope)))
        return Response(generate_latest(half), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def internal(request: Request) -> Response:
        return page(request, external=False)

    def outward(request: Request) -> Response:
        return page(request, external=True)

    return [
        Route("/internal-metrics", internal, methods=["GET"]),
        Route("/external-metrics", outward, methods=["GET"]),
    ]
