"""Vectors of single label and annotation parsers."""

from __future__ import annotations

from collections.abc import Callable

from conformance.registry import Json, adapter
from koordcore.protocol import amplification, lenient_json
from koordcore.protocol.annotations import cpu, devices, gang, node, pods
from koordcore.protocol.keys import REPLACE_RESOURCES
from koordcore.protocol.resource_names import parse_replace_resources
from koordcore.values import codec
from koordcore.values.duration import NANOS_PER_SECOND
from koordcore.values.resources import format_resources

Entries = dict[str, str]
Parser = Callable[[Entries, Entries, dict[str, Json]], dict[str, Json]]


def _preemption_policy(labels: Entries) -> dict[str, Json]:
    return {
        "value": pods.preemption_policy(labels),
        "with_default": pods.preemption_policy_or_never(labels),
    }


def _replace_resources(annotations: Entries) -> dict[str, Json]:
    wish = parse_replace_resources(annotations.get(REPLACE_RESOURCES, ""))
    return {"erase": list(wish.erase), "replace": dict(wish.replace)}


def _node_cpu_bind_policy(labels: Entries, kubelet: Json) -> dict[str, Json]:
    reported = lenient_json.convert(kubelet, cpu.KubeletCpuManagerPolicy)
    return {"value": str(cpu.node_cpu_bind_policy(labels, reported))}


def _cpu_normalization_ratio(annotations: Entries) -> dict[str, Json]:
    ratio = amplification.parse_cpu_normalization_ratio(annotations)
    return {"value": -1 if ratio is None else ratio}


def _node_bandwidth(annotations: Entries) -> dict[str, Json]:
    bandwidth = node.parse_network_bandwidth(annotations)
    return {"value": None if bandwidth is None else bandwidth.canonical()}


def _core_sched(labels: Entries) -> dict[str, Json]:
    found = cpu.core_sched(labels)
    return {"group": found.group, "policy": str(found.policy)}


def _gpu_partition_spec(annotations: Entries) -> dict[str, Json]:
    spec = devices.parse_gpu_partition_spec(annotations)
    if spec is None:
        return {"value": None}
    bandwidth = spec.ring_bus_bandwidth
    text = None if bandwidth is None else bandwidth.canonical()
    return {"value": {"allocatePolicy": spec.allocate_policy, "ringBusBandwidth": text}}


def _system_qos_exclusive(annotations: Entries) -> dict[str, Json]:
    found = cpu.parse_system_qos_resource(annotations)
    return (
        {"cpuset": None, "exclusive": None}
        if found is None
        else codec.to_builtins(found)
        | {
            "cpuset": found.cpuset,
            "exclusive": found.exclusive,
        }
    )


PARSERS: dict[str, Parser] = {
    "eviction_cost": lambda _l, a, _g: {"value": pods.parse_eviction_cost(a)},
    "pod_eviction_priority": lambda _l, a, _g: {"value": pods.parse_eviction_priority(a)},
    "pod_evict_enabled": lambda labels, _a, _g: {"value": pods.is_eviction_enabled(labels)},
    "gang_name": lambda labels, a, _g: {"value": gang.gang_name(labels, a)},
    "gang_match_policy": lambda _l, a, _g: {"value": gang.gang_match_policy(a)},
    "gang_wait_time": lambda _l, a, _g: {"seconds": gang.parse_gang_wait_time(a) / NANOS_PER_SECOND},
    "gang_min_num": lambda labels, a, _g: {"value": gang.parse_gang_min_num(labels, a)},
    "gang_total_num": lambda _l, a, _g: {"value": gang.parse_gang_total_num(a)},
    "preemption_policy": lambda labels, _a, _g: _preemption_policy(labels),
    "pod_preemptible": lambda labels, _a, _g: {"value": pods.is_preemptible(labels)},
    "pod_non_preemptible_quota": lambda labels, _a, _g: {"value": pods.is_quota_non_preemptible(labels)},
    "replace_resources": lambda _l, a, _g: _replace_resources(a),
    "node_cpu_bind_policy": lambda labels, _a, g: _node_cpu_bind_policy(labels, g.get("kubelet_policy")),
    "network_topology_index": lambda _l, a, _g: {"value": gang.parse_network_topology_index(a)},
    "cpu_normalization_ratio": lambda _l, a, _g: _cpu_normalization_ratio(a),
    "cpu_normalization_enabled": lambda labels, _a, _g: {
        "value": amplification.parse_cpu_normalization_enabled(labels)
    },
    "node_bandwidth": lambda _l, a, _g: _node_bandwidth(a),
    "pod_cpu_qos": lambda _l, a, _g: {"value": codec.to_builtins(cpu.parse_pod_cpu_qos(a))},
    "core_sched": lambda labels, _a, _g: _core_sched(labels),
    "gpu_partition_spec": lambda _l, a, _g: _gpu_partition_spec(a),
    "gpu_partition_policy": lambda labels, _a, _g: {"value": devices.gpu_partition_policy(labels)},
    "system_qos_exclusive": lambda _l, a, _g: _system_qos_exclusive(a),
    "scheduler_name": lambda labels, _a, g: {"value": pods.scheduler_name(labels, g.get("spec_scheduler_name") or "")},
    "third_party_batch": lambda _l, a, g: {
        "value": format_resources(node.parse_third_party_allocated(a, g["priority"]))
    },
}


@adapter("protocol.annotation_parse")
def annotation_parse(given: dict[str, Json]) -> dict[str, Json]:
    """One parser by the name that the specification gives it (protocol spec, Appendix A)."""
    return PARSERS[given["fn"]](given.get("labels") or {}, given.get("annotations") or {}, given)
