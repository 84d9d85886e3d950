"""Metrics of each node and its pods at `/metrics`: usage, best effort, predictions, requests, bursts, CPI, PSI, caches.

Names and labels are those of Koordinator's agent. Values come from the last snapshot of the node, so series of
objects that have ended disappear.

Source: agent spec, 21.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.cpuset import parse_cpuset
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koord_agent.domain.kernel.cfs_bandwidth import BURST, CFS_PERIOD_US, QUOTA
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.kernel.counters import DEGREES, RESOURCES
from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.node.cpu_pools import CpuPools
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentContainer, AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.prediction.model import Peak
from koord_agent.domain.prediction.reclaimable import ProdPrediction
from koord_agent.domain.strategies.cpu_suppress import Decision
from koord_agent.shell.collect.storage import Looks
from koord_agent.shell.metrics.series import PER_CONTAINER, PER_POD, PSI, Families
from koord_agent.shell.node.node_agent import NodeAgent

SLOW_MS: Final = 150_000
"""Age above which a value of a slow collector is not exported: slightly more than two of the longest intervals."""
_SCALED: Final = (("container_scaled_cfs_burst_us", BURST), ("container_scaled_cfs_quota_us", QUOTA))
_UNIT_OF: Final = {CPU: "core", MEMORY: "byte"}


def add_pod(families: Families, look: NodeLook, pod: AgentPod, scaled: Mapping[CgroupFile, int]) -> None:
    """`scaled` is what the files that CPU burst sets have."""
    labels = dict[str, str](zip(PER_POD, (look.node, pod.namespace, pod.name, pod.uid), strict=True))
    supported = look.metrics.last(Kind.POD_PSI_CPU_FULL_SUPPORTED, pod.uid, within_ms=SLOW_MS)
    _pressure(families, look, ("pod_psi", Kind.POD_PSI, (pod.uid,)), labels, supported)
    for container in pod.containers:
        if container.container_id:
            names = (*labels.values(), container.container_id, container.name)
            of_container = dict[str, str](zip(PER_CONTAINER, names, strict=True))
            _container(families, look, pod, container, of_container)
            _scaled(families, look, pod, container, scaled)


def _pressure(
    families: Families,
    look: NodeLook,
    of: tuple[str, Kind, tuple[str, ...]],
    labels: Mapping[str, str],
    supported: float | None,
) -> None:
    if supported is None:
        return
    family, kind, owner = of
    for resource in RESOURCES:
        for degree in DEGREES:
            value = look.metrics.last(kind, (*owner, resource, PSI_PRECISION, degree), within_ms=SLOW_MS)
            psi = dict(zip(PSI, (resource, PSI_PRECISION, degree, str(bool(supported)).lower()), strict=True))
            families.add(family, {**labels, **psi}, value)


def _container(
    families: Families, look: NodeLook, pod: AgentPod, container: AgentContainer, labels: Mapping[str, str]
) -> None:
    owner = (pod.uid, container.container_id)
    for field, of_kind in (("cycles", CYCLES), ("instructions", INSTRUCTIONS)):
        counted = look.metrics.last(Kind.CONTAINER_CPI, (*owner, of_kind), within_ms=SLOW_MS)
        families.add("container_cpi", {**labels, "cpi_field": field}, counted)
    supported = look.metrics.last(Kind.CONTAINER_PSI_CPU_FULL_SUPPORTED, owner, within_ms=SLOW_MS)
    _pressure(families, look, ("container_psi", Kind.CONTAINER_PSI, owner), labels, supported)
    for name, amounts in (("requests", container.requests), ("limits", container.limits)):
        for resource, amount in amounts.items():
            is_cpu = resource.endswith("cpu")
            unit = {"resource": resource, "unit": "integer" if is_cpu else "byte"}
            value = amount / 1000 if resource == CPU else amount
            families.add(f"container_resource_{name}", {**labels, **unit}, value)


def _scaled(
    families: Families, look: NodeLook, pod: AgentPod, container: AgentContainer, scaled: Mapping[CgroupFile, int]
) -> None:
    """Add the quotas and bursts that CPU burst proposed for a container."""
    try:
        directory = look.container_directory(pod, container.container_id)
    except UnknownContainerId:
        return
    labels = {
        "node": look.node,
        "pod_namespace": pod.namespace,
        "pod_name": pod.name,
        "container_id": container.container_id,
        "container_name": container.name,
    }
    for family, resource in _SCALED:
        families.add(family, labels, scaled.get(CgroupFile(directory, resource)))


class NodeSeries(Collector):
    """Metrics of the nodes of a process, read at each scrape. A process with many nodes exports none.

    Args:
        reported: Whether values of the last usage reports are exported, too.
        per_cpu: Whether the pools of CPUs have one series for each CPU.
    """

    def __init__(
        self, agents: Callable[[], Iterable[NodeAgent]], *, reported: bool = False, per_cpu: bool = False
    ) -> None:
        self._agents = agents
        self._reported = reported
        self._per_cpu = per_cpu

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all nodes of the process, for the Prometheus client."""
        families = Families()
        for agent in self._agents():
            look = agent.last_look
            if look is not None:
                _node(families, look)
                _best_effort(families, look, agent.last_decision, agent.be_quota_us)
                _caches(families, look)
                _pools(families, look, agent.measuring.pools, per_cpu=self._per_cpu)
                _prediction(families, look.node, agent.measuring.last_prediction)
                if self._reported:
                    _report(families, look.node, agent.measuring.last_report)
                _looks(families, agent)
                _store(families, agent)
                _extensions(families, look)
                for name, labels, value in agent.qos.hook_gauges:
                    families.add(name, {"node": look.node, **labels}, value)
                for pod in look.pods:
                    add_pod(families, look, pod, agent.qos.burst_values.by_file)
        yield from families.all.values()


def _node(families: Families, look: NodeLook) -> None:
    node, metrics = {"node": look.node}, look.metrics
    families.add("node_used_cpu_cores", node, metrics.last(Kind.NODE_CPU))
    families.add("node_used_memory_bytes", node, metrics.last(Kind.NODE_MEMORY))
    for resource, unit in _UNIT_OF.items():
        amount = look.allocatable.get(resource)
        if amount is not None:
            value = amount / 1000 if resource == CPU else amount
            families.add("node_resource_allocatable", {**node, "resource": resource, "unit": unit}, value)
    for application in look.host_applications:
        labels = {**node, "host_application_name": application.name}
        classes = {"priority_class": application.priority, "qos": application.qos}
        for resource, kind in ((CPU, Kind.HOST_APP_CPU), (MEMORY, Kind.HOST_APP_MEMORY)):
            value = metrics.last(kind, application.name)
            unit = {"resource": resource, "unit": _UNIT_OF[resource]}
            families.add("host_application_resource_usage", {**labels, **unit, **classes}, value)


def _extensions(families: Families, look: NodeLook) -> None:
    store, since_ms = look.metrics.store, look.now_ms - SLOW_MS
    for of in store.held(Kind.EXTENSION):
        collector, metric, about = of
        labels = {"node": look.node, "collector": collector, "metric": metric, "of": about}
        families.add("extension_metric", labels, store.last(Kind.EXTENSION, since_ms, look.now_ms, of))


def _best_effort(families: Families, look: NodeLook, decision: Decision | None, quota_us: int) -> None:
    node = {"node": look.node}
    used_milli = look.metrics.last(Kind.BE_CPU_USAGE)
    families.add("be_suppress_be_used_cpu_cores", node, None if used_milli is None else used_milli / 1000)
    if decision is not None and decision.terms is not None:
        families.add("be_suppress_ls_used_cpu_cores", node, decision.terms.pod_non_be_milli / 1000)
    if decision is not None and decision.want_cpus is not None and decision.cpuset is not None:
        families.add("be_suppress_cpu_cores", {**node, "type": "cpuset"}, len(decision.cpuset))
    elif quota_us > 0:
        families.add("be_suppress_cpu_cores", {**node, "type": "cfsQuota"}, quota_us / CFS_PERIOD_US)


def _caches(families: Families, look: NodeLook) -> None:
    for name, kind in (("resctrl_llc_occupancy", Kind.RESCTRL_LLC), ("resctrl_memory_bandwidth", Kind.RESCTRL_MB)):
        for of in sorted(look.metrics.store.held(kind)):
            qos, cache, *of_kind = of
            labels = {"node": look.node, "cache_id": cache, "qos": qos}
            if of_kind:
                labels["mb_type"] = of_kind[0]
            families.add(name, labels, look.metrics.last(kind, of, within_ms=SLOW_MS))


def _pools(families: Families, look: NodeLook, pools: CpuPools | None, *, per_cpu: bool) -> None:
    if pools is None:
        return
    for name, shared in (("cpuset_share_pool", pools.ls), ("cpuset_be_share_pool", pools.be)):
        cpus = sorted(cpu for pool in shared for cpu in parse_cpuset(pool.cpuset))
        families.add(f"{name}_cpu_cores", {"node": look.node}, len(cpus))
        for cpu in cpus if per_cpu else ():
            families.add(f"{name}_info", {"node": look.node, "cpu": str(cpu)}, 1.0)


def _prediction(families: Families, node: str, found: ProdPrediction | None) -> None:
    if found is None:
        return
    predictors = {
        "podReclaimablePredictor": found.by_pod,
        "priorityReclaimablePredictor": found.by_priority,
        "minPredictor": found.reported,
    }
    for predictor, prediction in predictors.items():
        if prediction is None:
            continue
        for name, peak in (("reclaimable", prediction.reclaimable), ("peak", prediction.peak)):
            for resource, value in _resources(peak):
                labels = {"node": node, "predictor": predictor, "resource": resource, "unit": _UNIT_OF[resource]}
                families.add(f"node_predicted_resource_{name}", labels, value)
    priority = {"node": node, "priority": str(PriorityBand.PROD)}
    reported = found.reported
    families.add("node_resource_priority_reclaimable_status", priority, 0.0 if reported is not None else 1.0)
    for resource, value in _resources(reported.reclaimable) if reported is not None else ():
        labels = {**priority, "resource": resource, "unit": _UNIT_OF[resource]}
        families.add("node_priority_resource_reclaimable", labels, value)


def _resources(peak: Peak) -> Iterator[tuple[str, float]]:
    yield CPU, peak.cpu_milli / 1000
    yield MEMORY, peak.memory_bytes


def _report(families: Families, node: str, report: NodeUsageReported | None) -> None:
    if report is None:
        return
    for name, usage in (("node_usage", report.node_usage), ("system_usage", report.system_usage)):
        for resource, value in _used(usage):
            labels = {"node": node, "resource": resource, "unit": _UNIT_OF[resource]}
            families.add(f"node_metric_{name}", labels, value)
    for numa in report.numa:
        for name, usage in (("numa_node_usage", numa.node_usage), ("numa_system_usage", numa.system_usage)):
            for resource, value in _used(usage):
                labels = {"node": node, "numa_node_id": str(numa.numa_node)}
                unit = {"resource": resource, "unit": _UNIT_OF[resource]}
                families.add(f"node_metric_{name}", {**labels, **unit}, value)


def _used(usage: Usage | None) -> Iterator[tuple[str, float]]:
    if usage is not None:
        yield CPU, usage.cpu_milli / 1000
        yield MEMORY, usage.memory_bytes


def _looks(families: Families, agent: NodeAgent) -> None:
    topology, storage = agent.measuring.topology, agent.qos.storage
    found: dict[str, Looks] = {}
    if topology is not None:
        found |= {"node_cpu_info": topology.cpu_looks, "node_numa_info": topology.numa_looks}
    if storage is not None:
        found["node_local_storage_info"] = storage.looks
    for name, looks in found.items():
        for status, number in (("succeeded", looks.succeeded), ("failed", looks.failed)):
            families.add(f"collect_{name}_status", {"node": agent.node, "status": status}, number)


def _store(families: Families, agent: NodeAgent) -> None:
    families.add("tsdb_series", {"node": agent.node}, len(agent.measuring.store))
    families.add("tsdb_size_bytes", {"node": agent.node}, agent.measuring.store.size_bytes)
