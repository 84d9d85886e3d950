"""Adapters for the CPU and NUMA kinds."""

from collections.abc import Callable, Mapping
from typing import Any

from conformance.registry import adapter
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy, ZoneStatus, admitted, ids_of, zones_of
from koord_scheduler.domain.plugins.numa.accumulator import (
    NOT_ENOUGH_CPUS,
    BindPolicy,
    CpuRequest,
    CpuUse,
    ExclusivePolicy,
    take_cpus,
)
from koord_scheduler.domain.plugins.numa.binding import Binding, ResourceSpec, binding_on, pod_binding
from koord_scheduler.domain.plugins.numa.columns import NumaColumns
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuLayout, cpus_in, mask_of, mask_text, parsed_mask
from koord_scheduler.domain.plugins.numa.hardware import NodeHardware, node_reserved_cpus, reserved_cpus, zone_cpu_left
from koord_scheduler.domain.plugins.numa.hinting import Strategy, zone_hints
from koord_scheduler.domain.plugins.numa.node_book import NodeBook, Taken
from koord_scheduler.domain.plugins.numa.plans import fits_amplified
from koord_scheduler.domain.plugins.numa.zones import Allocated, NodeZones, Shortage, allocate, sums
from koordcore.protocol import lenient_json
from koordcore.protocol.annotations.cpu import KubeletCpuManagerPolicy, KubeletCpus, node_cpu_bind_policy
from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.resource_names import CPU
from koordcore.values.quantity import Quantity
from koordcore.values.resources import Amounts, format_resources, parse_amounts, parse_resources, quantity_of
from koordcore.values.topology import CpuPlace

Json = dict[str, Any]


def layout_of(topology: Json) -> CpuLayout:
    """Return the CPUs of a node, listed or counted."""
    if "cpus" in topology:
        listed: list[Json] = topology["cpus"]
        places = [
            CpuPlace(cpu=each["cpu"], core=each["core"], socket=each["socket"], node=each["node"]) for each in listed
        ]
        return CpuLayout(tuple(places))
    per_core = topology["cpus_per_core"]
    per_zone = per_core * topology["cores_per_numa_node"]
    per_socket = per_zone * topology["numa_nodes_per_socket"]
    return CpuLayout(
        tuple(
            CpuPlace(cpu=cpu, core=cpu // per_core, node=cpu // per_zone, socket=cpu // per_socket)
            for cpu in range(per_socket * topology["sockets"])
        )
    )


@adapter("scheduler.cpu_accumulator", exact_text=("cpuset", "error"))
def cpu_accumulator(case: Json) -> Json:
    """Choose CPUs for a request."""
    layout, request = layout_of(case["topology"]), case["request"]
    counts: dict[int, int] = {}
    exclusive: dict[ExclusivePolicy, int] = {}
    entries: list[Json] = case.get("allocated") or []
    for entry in entries:
        cpus = parsed_mask(entry["cpuset"])
        for cpu in cpus_in(cpus):
            counts[cpu] = counts.get(cpu, 0) + entry.get("ref_count", 1)
        policy = ExclusivePolicy(entry.get("exclusive_policy") or "None")
        exclusive[policy] = exclusive.get(policy, 0) | cpus
    most = case.get("max_ref_count", 1)
    preferred = parsed_mask(case.get("preferred") or "")
    free = mask_of(cpu for cpu in cpus_in(layout.cpus) if counts.get(cpu, 0) < most)
    available = parsed_mask(case["available"]) if case.get("available") is not None else free
    taken = take_cpus(
        layout,
        available,
        CpuRequest(
            count=request["cpus"],
            bind_policy=_policy(request.get("bind_policy")),
            exclusive_policy=ExclusivePolicy(request.get("exclusive_policy") or "None"),
            most_allocated=case.get("numa_allocate_strategy") == "MostAllocated",
        ),
        CpuUse(ref_counts=counts, exclusive=exclusive),
        preferred,
    )
    return {"error": NOT_ENOUGH_CPUS, "cpuset": ""} if taken is None else {"cpuset": mask_text(taken)}


def _policy(text: str | None) -> BindPolicy:
    """Return the bind policy; whatever is not FullPCPUs is spread."""
    return BindPolicy.FULL_PCPUS if text == BindPolicy.FULL_PCPUS else BindPolicy.SPREAD_BY_PCPUS


def _can_fill(cpus_per_core: int) -> Callable[[int], bool]:
    return lambda count: count % cpus_per_core == 0


@adapter("scheduler.cpu_bind_resolve", exact_text=("error",))
def cpu_bind_resolve(case: Json) -> Json:
    """Resolve how a pod binds CPUs on a node."""
    pod, node = case["pod"], case["node"]
    args: dict[str, str] = case.get("args") or {}
    found = pod_binding(
        parse_amounts({CPU: pod.get("cpu_request") or "0"})[CPU],
        pod.get("qos") or "",
        pod.get("priority_class") or "",
        lenient_json.convert(pod.get("resource_spec"), ResourceSpec),
        args.get("defaultCPUBindPolicy", BindPolicy.FULL_PCPUS),
    )
    if isinstance(found, str):
        return {"error": found, "stage": "PreFilter"}
    kubelet = lenient_json.convert(node.get("kubelet_cpu_manager_policy"), KubeletCpuManagerPolicy)
    labels = {"node.koordinator.sh/cpu-bind-policy": node.get("cpu_bind_policy_label") or ""}
    binding = binding_on(
        found,
        node_cpu_bind_policy(labels, kubelet),
        can_fill=_can_fill(node.get("cpus_per_core") or 1) if node.get("has_cpu_topology", True) else None,
    )
    if isinstance(binding, str):
        return {"error": binding, "stage": "Filter"}
    if binding is None:
        return {"bind": False}
    return {
        "bind": True,
        "cpus": binding.count,
        "policy": str(binding.policy),
        "required": binding.is_required,
        "exclusive_policy": str(binding.exclusive),
    }


@adapter("scheduler.amplified_cpu_filter")
def amplified_cpu_filter(case: Json) -> Json:
    """Compare CPU on an amplified node."""
    fit = fits_amplified(
        case["pod_milli_cpu"],
        is_bound=case.get("bind", False),
        ratio=case.get("cpu_amplification_ratio", 1),
        allocatable=case["node_allocatable_milli_cpu"],
        requested=case.get("node_requested_milli_cpu", 0),
        bound_cpus=case.get("allocated_cpuset_cpus", 0),
    )
    return {"fit": fit}


@adapter(
    "scheduler.node_reserved_cpus",
    resource_lists=("schedulable", "zone_cpu"),
    exact_text=("node_reservation_cpus", "scheduler_reserved_cpus", "bindable_cpus"),
)
def node_reserved(case: Json) -> Json:
    """Return the reserved CPUs and what is left."""
    layout = layout_of(case["topology"])
    annotations: dict[str, str] = case.get("node_annotations") or {}
    kubelet = lenient_json.convert(case.get("kubelet_cpu_manager_policy"), KubeletCpuManagerPolicy)
    allocs = lenient_json.convert(case.get("pod_cpu_allocs") or [], list[KubeletCpus])
    reserved = reserved_cpus(layout, annotations, kubelet, allocs)
    allocated = 0
    texts: list[str] = case.get("allocated_cpusets") or []
    for text in texts:
        allocated |= parsed_mask(text)
    zones: dict[str, Json] = case.get("zones") or {}
    left = {
        zone: quantity_of(CPU, zone_cpu_left(parse_amounts(amounts).get(CPU, 0), layout, int(zone), reserved))
        for zone, amounts in zones.items()
    }
    schedulable = trim_allocatable(parse_resources(case.get("node_allocatable")), node_reservation(annotations))
    return {
        "node_reservation_cpus": node_reserved_cpus(layout, annotations),
        "scheduler_reserved_cpus": mask_text(reserved),
        "bindable_cpus": mask_text(layout.cpus & ~reserved & ~allocated),
        "zone_cpu": format_resources(left),
        "schedulable": format_resources(schedulable),
    }


def _node(node: Json) -> tuple[NodeZones, dict[str, int]]:
    """Return the node of a case, and the CPUs of its pods."""
    layout = layout_of(node["topology"])
    entries: list[Json] = node.get("allocated") or []
    recorded: dict[int, list[Amounts]] = {}
    exclusive: dict[ExclusivePolicy, int] = {}
    cpusets: dict[str, int] = {}
    bound = 0
    for index, entry in enumerate(entries):
        cpus = parsed_mask(entry.get("cpuset") or "")
        bound |= cpus
        if cpus:
            cpusets[str(index)] = cpus
        policy = ExclusivePolicy(entry.get("exclusive_policy") or "None")
        exclusive[policy] = exclusive.get(policy, 0) | cpus
        of_zones: dict[str, Json] = entry.get("numa_resources") or {}
        for zone, amounts in of_zones.items():
            recorded.setdefault(int(zone), []).append(parse_amounts(amounts))
    zones: dict[str, Json] = node.get("zones") or {}
    ratios: dict[str, float] = node.get("amplification_ratios") or {}
    reserved = parsed_mask(node.get("reserved_cpus") or "")
    return NodeZones(
        layout=layout,
        allocatable={int(zone): parse_amounts(amounts) for zone, amounts in zones.items()},
        allocated={zone: sums(amounts) for zone, amounts in recorded.items()},
        bound=bound,
        free=layout.cpus & ~reserved & ~bound,
        use=CpuUse(exclusive=exclusive),
        ratio=ratios.get(CPU, 1.0),
        most_allocated=node.get("numa_allocate_strategy") == "MostAllocated",
    ), cpusets


def _pod(pod: Json) -> tuple[Amounts, Binding | None]:
    requests = parse_amounts(pod["requests"])
    if not pod.get("bind_cpus"):
        return requests, None
    exclusive = ExclusivePolicy(pod.get("exclusive_policy") or "None")
    policy = _policy(pod.get("bind_policy"))
    return requests, Binding(requests.get(CPU, 0) // 1000, policy, pod.get("required", False), exclusive)


def _allocated(found: Allocated | Shortage) -> Json:
    if isinstance(found, Shortage):
        return {"error": True, "reasons": list(found.reasons)}
    return {
        "cpuset": mask_text(found.cpus),
        "numa_resources": {str(zone): format_resources(_quantities(amounts)) for zone, amounts in found.zones.items()},
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    return {name: quantity_of(name, amount) for name, amount in amounts.items()}


@adapter("scheduler.numa_allocate", exact_text=("cpuset",), whole=("numa_resources",), sets=("reasons",))
def numa_allocate(case: Json) -> Json:
    """Allocate inside an affinity."""
    node, _ = _node(case["node"])
    requests, binding = _pod(case["pod"])
    affinity = case.get("affinity")
    return _allocated(allocate(node, requests, binding, None if affinity is None else zones_of(affinity)))


def _statuses(node: NodeZones, cpusets: Mapping[str, int]) -> dict[int, ZoneStatus]:
    """Return the statuses of the zones as the columns of all nodes count them."""
    book, columns = NodeBook(), NumaColumns(1)
    book.hardware = NodeHardware(layout=node.layout, zones={zone: {} for zone in node.allocatable})
    for uid, cpus in cpusets.items():
        book.take(uid, Taken(cpus, ExclusivePolicy.NONE, {}))
    columns.put(0, book)
    return columns.statuses(0, node.allocatable)


@adapter("scheduler.numa_admit", exact_text=("cpuset",), whole=("numa_resources", "hints"))
def numa_admit(case: Json) -> Json:
    """Make hints, merge them, allocate."""
    node, cpusets = _node(case["node"])
    requests, binding = _pod(case["pod"])
    policy = TopologyPolicy(case["policy"])
    scoring: Json = case.get("scoring") or {}
    weights: dict[str, int] = scoring.get("resources") or {"cpu": 1, "memory": 1}
    strategy = Strategy(most_allocated=scoring.get("type") == "MostAllocated", weights=tuple(weights.items()))
    hints = zone_hints(node, requests, binding, policy, strategy)
    exclusive = _statuses(node, cpusets) if case.get("exclusive_policy") == "Required" else None
    decision = admitted(policy, node.zones, [hints], exclusive)
    answer: Json = {
        "hints": {
            resource: [
                {"nodes": ids_of(hint.zones or 0), "preferred": hint.preferred, "score": hint.score} for hint in found
            ]
            for resource, found in hints.items()
        },
        "admit": decision.is_admitted,
    }
    if not decision.is_admitted:
        return answer
    # Admission and allocation are two answers: BestEffort always admits, and the allocation may still fail the node.
    return {
        **answer,
        "affinity": None if decision.zones is None else ids_of(decision.zones),
        "allocation": _allocated(allocate(node, requests, binding, decision.zones)),
    }
