"""What `/metrics` says of each node, read at each scrape: usage, best effort, predictions, CPI, PSI, CPUs, caches.

Names and labels are the reference's. Values are those of the agent's last look at the node, so what vanished from the
node vanishes from here. source    agent spec, 21
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.cpuset import parse_cpuset
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord_agent.domain.cgroup_files import CFS_PERIOD_US
from koord_agent.domain.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.node_look import NodeLook
from koord_agent.domain.pods import AgentContainer, AgentPod
from koord_agent.domain.prediction.model import Peak
from koord_agent.domain.prediction.reclaimable import ProdPrediction
from koord_agent.domain.pressure import DEGREES, RESOURCES
from koord_agent.domain.qos.cpu_suppress import Decision
from koord_agent.domain.topology_report import CpuPools
from koord_agent.shell.node_agent import NodeAgent

SLOW_MS: Final = 150_000
"""How old the value of a collector of its own interval may be: two intervals of the slowest, and a little."""
_PER_POD: Final = ("node", "pod_namespace", "pod_name", "pod_uid")
_PER_CONTAINER: Final = (*_PER_POD, "container_id", "container_name")
_PSI: Final = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_UNIT_OF: Final = {CPU: "core", MEMORY: "byte"}


class NodeSeries(Collector):
    """The series of a process's nodes.

    agents    read at each scrape; a process of many nodes gives none
    """

    def __init__(self, agents: Callable[[], Iterable[NodeAgent]]) -> None:
        self._agents = agents

    def collect(self) -> Iterator[Metric]:
        """All families; see `Collector`."""
        families = _Families()
        for agent in self._agents():
            look = agent.last_look
            if look is not None:
                _node(families, look)
                _best_effort(families, look, agent.last_decision, agent.be_quota_us)
                _caches(families, look)
                _pools(families, look, agent.topology.pools if agent.topology is not None else None)
                _prediction(families, look.node, agent.last_prediction)
                for pod in look.pods:
                    _pod(families, look, pod)
        yield from families.all.values()


class _Families:
    """Families by name; each made with its first sample."""

    def __init__(self) -> None:
        self.all: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float | None) -> None:
        if value is None:
            return
        family = self.all.get(name)
        if family is None:
            family = self.all[name] = GaugeMetricFamily(f"koordlet_{name}", name.replace("_", " "), labels=list(labels))
        family.add_metric(list(labels.values()), value)


def _node(families: _Families, look: NodeLook) -> None:
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


def _best_effort(families: _Families, look: NodeLook, decision: Decision | None, quota_us: int) -> None:
    node = {"node": look.node}
    used_milli = look.metrics.last(Kind.BE_CPU_USAGE)
    families.add("be_suppress_be_used_cpu_cores", node, None if used_milli is None else used_milli / 1000)
    if decision is not None and decision.terms is not None:
        families.add("be_suppress_ls_used_cpu_cores", node, decision.terms.pod_non_be_milli / 1000)
    if decision is not None and decision.want_cpus is not None and decision.cpuset is not None:
        families.add("be_suppress_cpu_cores", {**node, "type": "cpuset"}, len(decision.cpuset))
    elif quota_us > 0:
        families.add("be_suppress_cpu_cores", {**node, "type": "cfsQuota"}, quota_us / CFS_PERIOD_US)


def _caches(families: _Families, look: NodeLook) -> None:
    """Counters of resctrl groups: occupancy by cache, bandwidth by cache and kind."""
    for name, kind in (("resctrl_llc_occupancy", Kind.RESCTRL_LLC), ("resctrl_memory_bandwidth", Kind.RESCTRL_MB)):
        for of in sorted(look.metrics.store.held(kind)):
            qos, cache, *of_kind = of
            labels = {"node": look.node, "cache_id": cache, "qos": qos}
            if of_kind:
                labels["mb_type"] = of_kind[0]
            families.add(name, labels, look.metrics.last(kind, of, within_ms=SLOW_MS))


def _pools(families: _Families, look: NodeLook, pools: CpuPools | None) -> None:
    if pools is None:
        return
    for name, shared in (("cpuset_share_pool", pools.ls), ("cpuset_be_share_pool", pools.be)):
        cpus = sorted(cpu for pool in shared for cpu in parse_cpuset(pool.cpuset))
        families.add(f"{name}_cpu_cores", {"node": look.node}, len(cpus))
        for cpu in cpus:
            families.add(f"{name}_info", {"node": look.node, "cpu": str(cpu)}, 1.0)


def _prediction(families: _Families, node: str, found: ProdPrediction | None) -> None:
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


def _pod(families: _Families, look: NodeLook, pod: AgentPod) -> None:
    labels = dict(zip(_PER_POD, (look.node, pod.namespace, pod.name, pod.uid), strict=True))
    supported = look.metrics.last(Kind.POD_PSI_CPU_FULL_SUPPORTED, pod.uid, within_ms=SLOW_MS)
    if supported is not None:
        for resource in RESOURCES:
            for degree in DEGREES:
                pressure = look.metrics.pressure(pod.uid, resource, degree, within_ms=SLOW_MS)
                psi = dict(zip(_PSI, (resource, PSI_PRECISION, degree, str(bool(supported)).lower()), strict=True))
                families.add("pod_psi", {**labels, **psi}, pressure)
    for container in pod.containers:
        if container.container_id:
            names = (*labels.values(), container.container_id, container.name)
            _container(families, look, pod, container, dict(zip(_PER_CONTAINER, names, strict=True)))


def _container(
    families: _Families, look: NodeLook, pod: AgentPod, container: AgentContainer, labels: Mapping[str, str]
) -> None:
    for field, of_kind in (("cycles", CYCLES), ("instructions", INSTRUCTIONS)):
        counted = look.metrics.last(Kind.CONTAINER_CPI, (pod.uid, container.container_id, of_kind), within_ms=SLOW_MS)
        families.add("container_cpi", {**labels, "cpi_field": field}, counted)
    for name, amounts in (("requests", container.requests), ("limits", container.limits)):
        for resource, amount in amounts.items():
            is_cpu = resource.endswith("cpu")
            unit = {"resource": resource, "unit": "integer" if is_cpu else "byte"}
            value = amount / 1000 if resource == CPU else amount
            families.add(f"container_resource_{name}", {**labels, **unit}, value)
