"""Vectors of the node agent: which cpus best-effort pods may use."""

from __future__ import annotations

import json

from conformance.adapters.agent.cgroups import host_application
from conformance.registry import Json, adapter, disputed
from koord_agent.domain.node.pods import agent_pod, node_reserved_milli
from koord_agent.domain.strategies import cpu_suppress
from koord_agent.domain.strategies.be_cpuset import CpuOwners, select_cpus
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.quantity import parse_milli
from koordcore.values.resources import parse_resources
from koordcore.values.topology import CpuPlace


def _places(rows: list[list[int]]) -> tuple[CpuPlace, ...]:
    return tuple(CpuPlace(cpu=cpu, core=core, socket=socket, node=node) for cpu, core, socket, node in rows)


@adapter("agent.be_cpuset_select")
def be_cpuset_select(given: dict[str, Json]) -> dict[str, Json]:
    """n CPUs for best effort out of a topology (agent spec, 11.3)."""
    chosen = select_cpus(given["want_cpus"], _places(given["cpus"]))
    return {"cpuset": format_cpuset(chosen), "count": len(chosen)}


disputed(
    "agent.cpu_suppress",
    "cpuset: reservation leaves too few LS cpus -> unchanged",
    "reality, 4.11: best effort moves off CPUs of LSE pods and reserved ones to any CPU that is left, here CPU 0"
    " (test_best_effort_takes_what_is_left)",
)


@adapter("agent.cpu_suppress")
def cpu_suppress_decision(given: dict[str, Json]) -> dict[str, Json]:
    """The best-effort budget and what it does to quota or CPU list (agent spec, 11.1, 11.2, 11.5)."""
    node = node_from_json(given["node"])
    pods = [(agent_pod(pod_from_json(pod)), pod.get("cpu_used_cores")) for pod in given["pods"]]
    be_root = given.get("be_root", {})
    cpuset = be_root.get("cpuset")
    topology = given.get("topology")
    owners = None
    if topology is not None:
        reserved, system = _topology_annotations(topology.get("annotations", {}))
        owners = CpuOwners(
            cpus=_places(topology["cpus"]),
            by_qos_label={cpu: pod.qos_label for pod, _ in pods for cpu in pod.cpuset},
            reserved=reserved,
            system_exclusive=system,
        )
    view = cpu_suppress.NodeView(
        now_ms=0,
        capacity_milli=parse_milli(node.status.capacity.get("cpu", 0)),
        reserved_milli=node_reserved_milli(
            parse_resources(node.status.capacity), parse_resources(node.status.allocatable), node.metadata.annotations
        ),
        node_cpu_used_cores=given["node_cpu_used_cores"],
        pods=tuple(cpu_suppress.PodCpu(is_best_effort=pod.is_best_effort, cpu_used_cores=used) for pod, used in pods),
        orphan_cpu_used_cores=sum(given.get("orphan_pod_usage", {}).values()),
        host_applications=tuple(
            cpu_suppress.HostAppCpu(
                is_best_effort=host_application(app).is_best_effort, cpu_used_cores=app.get("cpu_used_cores")
            )
            for app in given.get("host_applications", [])
        ),
        be_root="kubepods/besteffort",
        be_quota_us=be_root.get("cfs_quota_us", -1),
        be_cgroups=()
        if cpuset is None
        else (cpu_suppress.BeCgroup(directory="kubepods/besteffort", cpuset=parse_cpuset(cpuset)),),
        owners=owners,
    )
    threshold = given["threshold"]
    policy = ThresholdStrategy(
        enable=True,
        cpu_suppress_threshold_percent=threshold["cpuSuppressThresholdPercent"],
        cpu_suppress_min_percent=threshold.get("cpuSuppressMinPercent"),
        cpu_suppress_policy=threshold.get("cpuSuppressPolicy", "cpuset"),
    )
    terms = cpu_suppress.budget(view, policy, given["node_cpu_used_cores"])
    decision = cpu_suppress.decide(view, policy)
    in_force = "" if decision.cpuset is None else format_cpuset(decision.cpuset)
    return {
        "be_suppress_milli_cpu": terms.budget_milli,
        "action": decision.action.value,
        "want_cpus": decision.want_cpus,
        "cpuset": in_force,
        "cfs_quota_us": decision.new_quota_us,
    }


def _topology_annotations(annotations: dict[str, str]) -> tuple[frozenset[int], frozenset[int]]:
    """CPUs that the topology object reports as reserved, and as exclusive to the system QoS."""
    reservation = json.loads(annotations.get("node.koordinator.sh/reservation", "{}"))
    system = json.loads(annotations.get("node.koordinator.sh/system-qos-resource", "{}"))
    exclusive = parse_cpuset(system.get("cpuset", "")) if system.get("cpusetExclusive", True) else frozenset[int]()
    return parse_cpuset(reservation.get("reservedCPUs", "")), exclusive
