"""Metrics of pods and their containers: requests, limits, bursts, CPI, PSI.

Source: agent spec, 21.
"""

from collections.abc import Mapping
from typing import Final

from koordcore.protocol.resource_names import CPU

from koord_agent.domain.kernel.cgroup_files import QUOTA
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.kernel.pressure import DEGREES, RESOURCES
from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.qos.strategies.cpu_burst_strategy import BURST
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentContainer, AgentPod
from koord_agent.shell.metrics.series import PER_CONTAINER, PER_POD, PSI, Families

SLOW_MS: Final = 150_000
"""Age above which a value of a slow collector is not exported: slightly more than two of the longest intervals."""
_SCALED: Final = (("container_scaled_cfs_burst_us", BURST), ("container_scaled_cfs_quota_us", QUOTA))


def add_pod(families: Families, look: NodeLook, pod: AgentPod, scaled: Mapping[CgroupFile, int]) -> None:
    """Add the metrics of one pod and its containers.

    Args:
        families: Metric families, to which samples are added.
        look: Snapshot of the node.
        pod: The pod.
        scaled: File -> quota or burst buffer that CPU burst proposed last.
    """
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
