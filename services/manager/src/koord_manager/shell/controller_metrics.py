"""Metrics of the controllers with the names of Koordinator, and metrics of recommender and node health.

The work queues have the names that Kubernetes' controllers use.

Source:
    manager spec, 17.1
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from koordcore.events.envelope import Event
from koordcore.events.nodepolicy import (
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.quota import QuotaProfileRendered
from koordcore.state.aggregates import ControllerState, RecommendationState
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.cluster.work_queue import Failure, WorkQueue
from koord_manager.domain.controllers.node_resources.decide import Overcommit
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.recommender.decide import LOW_CONFIDENCE
from koord_manager.domain.controllers.slo_adjust.assessment import Level
from koord_manager.domain.gateway.requests import Meaning

KEPT_SECONDS: Final = 300
_ACTIONS: Final[dict[type[Event], tuple[str, str]]] = {
    NodeOvercommitComputed: ("node_resource", "updateNodeStatus"),
    NodeRatiosComputed: ("node_resource", "patchNodeMeta"),
    NodeDevicesComputed: ("node_resource", "updateNodeStatus"),
    NodeMetricPolicyRendered: ("nodemetric", "updateNodeMetric"),
    NodeSloRendered: ("nodeslo", "updateNodeSLO"),
    QuotaProfileRendered: ("quota_profile", "updateQuota"),
}
_ACTION_OF: Final = {
    "overcommit": ("node_resource", "updateNodeStatus"),
    "ratios": ("node_resource", "patchNodeMeta"),
    "devices": ("node_resource", "updateNodeStatus"),
    "nodemetric": ("nodemetric", "updateNodeMetric"),
    "nodeslo": ("nodeslo", "updateNodeSLO"),
    "quotaprofile": ("quota_profile", "updateQuota"),
}
"""Controller -> the reference's metric and reason of a failed decision."""
_PLUGINS_OF: Final = {
    "overcommit": ("BatchResource", "MidResource"),
    "ratios": ("CPUNormalization", "ResourceAmplification"),
    "devices": ("GPUDeviceResource", "RDMADeviceResource"),
}
_WRITES: Final = {
    "node-status": ("node_resource", "updateNodeStatus"),
    "node-metadata": ("node_resource", "patchNodeMeta"),
    "topology-zones": ("node_resource", "updateNodeResourceTopology"),
    "create-nodemetric": ("nodemetric", "createNodeMetric"),
    "update-nodemetric": ("nodemetric", "updateNodeMetric"),
    "delete-nodemetric": ("nodemetric", "deleteNodeMetric"),
    "create-nodeslo": ("nodeslo", "createNodeSLO"),
    "update-nodeslo": ("nodeslo", "updateNodeSLO"),
    "delete-nodeslo": ("nodeslo", "deleteNodeSLO"),
    "create-quota": ("quota_profile", "createQuota"),
    "update-quota": ("quota_profile", "updateQuota"),
}
"""Purpose of a write of the gateway -> the reference's metric and reason."""
_NOT_FOUND: Final = {"node-status": "updateNodeNotFound", "node-metadata": "updateNodeMetaNotFound"}
_SLO_PARTS: Final = (
    "getResourceThresholdSpec",
    "getResourceQOSSpec",
    "getCPUBurstConfigSpec",
    "getSystemConfigSpec",
    "getHostApplicationConfig",
)
_SUCCEEDED, _FAILED = "succeeded", "failed"


class ControllerMetrics:
    """Prometheus metrics of the controllers, the recommender and node health.

    Koordinator's counters have names without `_total`. The Python client of Prometheus appends it to a counter, so
    these are gauges that only grow, and queries and dashboards keep working.

    Args:
        writes_objects: Whether objects are written to an API server. Then its answers count as reconciled; otherwise
            the stored facts count.
    """

    def __init__(self, registry: CollectorRegistry, *, writes_objects: bool = False) -> None:
        gauge = partial(Gauge, registry=registry)
        self._writes_objects = writes_objects
        self._reconciled = {
            what: gauge(
                f"slo_controller_{what}_reconcile_count", f"Decisions about {what}, by outcome", ["status", "reason"]
            )
            for what in ("node_resource", "nodemetric", "nodeslo", "quota_profile")
        }
        self._parsed = {
            what: gauge(
                f"slo_controller_{what}_spec_parse_count",
                f"Specs of {what} rendered from the configuration, by outcome",
                ["status", "reason"],
            )
            for what in ("nodemetric", "nodeslo")
        }
        self._plugins = gauge(
            "slo_controller_node_resource_run_plugin_status",
            "Calculations of nodes, by plugin and outcome",
            ["plugin", "status", "reason"],
        )
        self._lent = gauge(
            "slo_controller_node_extended_resource_allocatable_internal",
            "Overcommitted resources of a node before publication; cpu in cores",
            ["node", "resource", "unit"],
        )
        self._lent_at: dict[str, float] = {}
        self._objects = gauge("koord_manager_recommender_objects", "Number of Recommendations")
        self._low_confidence = gauge(
            "koord_manager_recommender_low_confidence_objects",
            "Number of Recommendations with less than a day of history",
        )
        self._samples = gauge("koord_manager_recommender_samples", "Samples taken in by this process")
        self._loop = Histogram(
            "koord_manager_recommender_loop_seconds",
            "Duration of one step of a recommender run, in seconds",
            registry=registry,
        )
        self._failures = Counter(
            "koord_manager_decision_failures", "Number of decisions that failed", ["controller"], registry=registry
        )
        self._failing = gauge(
            "koord_manager_failing_objects",
            "Number of objects (and whole controllers) whose last decision failed",
            ["controller"],
        )
        self._failing_before: set[str] = set()
        self._levels = gauge("koord_manager_slo_level_nodes", "Number of nodes, by health level", ["level"])
        self._mass = gauge("koord_manager_slo_mass_abnormal", "1 if more nodes look abnormal than may be lowered")

    def set_up(self, plugins: Iterable[str]) -> None:
        for plugin in plugins:
            self._plugins.labels(plugin, _SUCCEEDED, "Setup").inc()

    def decided(self, events: Iterable[Event], *, stored: bool) -> None:
        """Count the facts of a decision. `stored`: whether the log stored them; otherwise it refused them."""
        for event in events:
            self._part_decided(event)
            action = _ACTIONS.get(type(event))
            if action is not None and not (stored and self._writes_objects):
                what, reason = action
                self._reconciled[what].labels(_SUCCEEDED if stored else _FAILED, reason).inc()

    def _part_decided(self, event: Event) -> None:
        match event:
            case NodeMetricPolicyRendered():
                self._parsed["nodemetric"].labels(_SUCCEEDED, "getNodeMetricCollectPolicy").inc()
            case NodeSloRendered():
                for part in _SLO_PARTS:  # only the system part can fail: by the node's own annotation
                    failed = bool(event.fault) and part == "getSystemConfigSpec"
                    self._parsed["nodeslo"].labels(_FAILED if failed else _SUCCEEDED, part).inc()
            case NodeRatiosComputed():
                for plugin, name in (("CPUNormalization", "normalization"), ("ResourceAmplification", "amplification")):
                    self._ran(plugin, "ResourceCalculate", failed=name in event.faults)
                    for stage in ("NodeStatusCheckMeta", "NodePrepare"):
                        self._ran(plugin, stage, failed=False)
            case NodeDevicesComputed():
                for plugin in ("GPUDeviceResource", "RDMADeviceResource"):
                    self._ran(plugin, "ResourceCalculate" if event.resources else "ResourceReset", failed=False)
                    for stage in ("NodeStatusCheckMeta", "NodePrepare"):
                        self._ran(plugin, stage, failed=False)
            case NodeOvercommitComputed():
                if event.zones:
                    self._ran("BatchResource", "NodePreUpdate", failed=False)
                for plugin in ("BatchResource", "MidResource"):
                    self._ran(plugin, "NodePrepare", failed=False)
            case _:
                pass

    def _ran(self, plugin: str, reason: str, *, failed: bool) -> None:
        self._plugins.labels(plugin, _FAILED if failed else _SUCCEEDED, reason).inc()

    def wrote(self, purpose: str, meaning: str) -> None:
        """Count a write of the gateway to the API server; no-op for writes without a metric of Koordinator."""
        action = _WRITES.get(purpose)
        if action is None:
            return
        what, reason = action
        if meaning == Meaning.GONE and purpose in _NOT_FOUND:
            reason = _NOT_FOUND[purpose]
        done = meaning == Meaning.DONE or (meaning == Meaning.GONE and purpose.startswith("delete-"))
        self._reconciled[what].labels(_SUCCEEDED if done else _FAILED, reason).inc()

    def not_found(self) -> None:
        self._reconciled["node_resource"].labels(_FAILED, "reconcileNodeNotFound").inc()

    def lent(self, node: str, found: Overcommit, at: float) -> None:
        """Set the metrics of a node's batch and mid resources (`at`: seconds); withdrawn ones are not changed."""
        for plugin, result in (("BatchResource", found.batch), ("MidResource", found.mid)):
            self._ran(plugin, "ResourceCalculate" if result else "ResourceReset", failed=False)
            self._ran(plugin, "NodeStatusCheck", failed=False)
            if result is not None:
                name = plugin.removesuffix("Resource").lower()
                self._lent.labels(node, f"kubernetes.io/{name}-cpu", "integer").set(result.cpu_milli / 1000)
                self._lent.labels(node, f"kubernetes.io/{name}-memory", "byte").set(result.memory_bytes)
                self._lent_at[node] = at

    def failed(self, failures: Iterable[Failure], failing: Iterable[tuple[str, str]]) -> None:
        """Count failed decisions, and set the number of failing objects (controller, key) of each controller."""
        for failure in failures:
            self._failures.labels(failure.controller).inc()
            if failure.controller == "nodemetric":
                self._parsed["nodemetric"].labels(_FAILED, "getNodeMetricCollectPolicy").inc()
            action = _ACTION_OF.get(failure.controller)
            if action is not None:
                what, reason = action
                self._reconciled[what].labels(_FAILED, reason).inc()
            for plugin in _PLUGINS_OF.get(failure.controller, ()):
                self._ran(plugin, "ResourceCalculate", failed=True)
        counts = Counts(controller for controller, _ in failing)
        for controller in self._failing_before | counts.keys():
            self._failing.labels(controller).set(counts[controller])
        self._failing_before = set(counts)

    def forget_before(self, now: float) -> None:
        """Remove the metrics of nodes that were not computed in the five minutes before `now`, in seconds."""
        for node in [node for node, at in self._lent_at.items() if now - at > KEPT_SECONDS]:
            del self._lent_at[node]
            for name in ("batch", "mid"):
                self._lent.remove(node, f"kubernetes.io/{name}-cpu", "integer")
                self._lent.remove(node, f"kubernetes.io/{name}-memory", "byte")

    def recommended(self, rounds: RecommenderController, view: ManagerView, seconds: float) -> None:
        """Record the duration of a run of the recommender, and set the numbers of Recommendations and samples."""
        self._objects.set(len(rounds.book.targets.all()))
        self._samples.set(rounds.book.samples)
        self._loop.observe(seconds)
        self._low_confidence.set(
            sum(
                any(condition.type == LOW_CONFIDENCE and condition.status == "True" for condition in state.conditions)
                for state in view.state.of_kind(RecommendationState).values()
            )
        )

    def assessed(self, view: ManagerView) -> None:
        counts = dict.fromkeys(Level, 0)
        for token in view.nodes():
            policy = view.policy(token)
            if policy is not None and policy.health is not None:
                counts[Level(policy.health.level)] += 1
        for level, count in counts.items():
            self._levels.labels(str(level)).set(count)
        self._mass.set(any(state.mass_abnormal for state in view.state.of_kind(ControllerState).values()))


_BUCKETS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class QueueMetrics(Collector):
    """Prometheus metrics of all work queues. The queues are read at each request for the metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sources: list[Callable[[], WorkQueue | None]] = []
        self._duration = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a key was ready before its controller took it, in seconds",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def add(self, source: Callable[[], WorkQueue | None]) -> None:
        """Publish the metrics of one more work queue. `source` returns the queue, or None while it does not exist."""
        self._sources.append(source)

    def taken(self, name: str, seconds: float) -> None:
        self._duration.labels(name).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Current number of ready keys", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Number of keys added", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Number of retries with back-off", labels=["name"])
        wait = GaugeMetricFamily(
            "workqueue_longest_wait_seconds", "Time that the oldest ready key has waited, in seconds", labels=["name"]
        )
        for queue in [queue for source in self._sources if (queue := source()) is not None]:
            for name in queue.controllers():
                added, retried = queue.counts(name)
                depth.add_metric([name], queue.depth(name))
                adds.add_metric([name], added)
                retries.add_metric([name], retried)
                wait.add_metric([name], queue.longest_wait(name))
        yield from (depth, adds, retries, wait)
