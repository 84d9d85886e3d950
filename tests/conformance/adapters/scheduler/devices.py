"""Vectors of DeviceShare: request forms, scores, partition tables, allocation."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter, disputed
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.inventory import read_device
from koord_scheduler.domain.plugins.device.partitions import choose_partition
from koord_scheduler.domain.plugins.device.picking import DeviceScoring, device_score
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal
from koord_scheduler.domain.plugins.device.usage import DeviceUse
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import parse_allocation
from koordcore.protocol.annotations.devices import parse_gpu_partition_spec, parse_gpu_partitions
from koordcore.protocol.hardware.device_requests import GPU_TYPE, device_requests, with_both_memory_units
from koordcore.values.quantity import parse_value
from koordcore.values.resources import parse_amounts

disputed(
    "scheduler.device_allocate",
    "joint SamePCIe: NIC of the needed switch is full",
    "reality, 3.8: another switch has a free GPU and a free NIC, so it is tried next"
    " (test_a_pod_gets_the_gpus_of_another_switch_if_the_first_one_has_no_adapter)",
)


def _scoring(raw: Json) -> DeviceScoring:
    if not raw:
        return DeviceScoring()
    return DeviceScoring(tuple(raw["resources"].items()), raw["type"] != "MostAllocated")


def _texts(amounts: Json) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@adapter("scheduler.gpu_request_convert", resource_lists=("device_requests", "per_gpu", "per_gpu_filled"))
def gpu_request_convert(given: dict[str, Json]) -> dict[str, Json]:
    requests = device_requests(parse_amounts(given.get("pod_requests") or {}))
    found: dict[str, Json] = {}
    for type_, request in requests.items():
        found[type_] = {"device_requests": _texts(request.total)}
        if type_ == GPU_TYPE:
            found[type_] |= {
                "gpus": request.count,
                "shared": request.is_shared,
                "per_gpu": _texts(request.per_device),
            }
            if given.get("gpu_memory_per_card") is not None:
                memory = parse_value(given["gpu_memory_per_card"])
                found[type_]["per_gpu_filled"] = _texts(with_both_memory_units(request.per_device, memory))
    return found


@adapter("scheduler.device_score")
def device_score_(given: dict[str, Json]) -> dict[str, Json]:
    request, total, free = (parse_amounts(given.get(name) or {}) for name in ("request", "total", "free"))
    return {"score": device_score(request, total, free, _scoring(given.get("scoring")))}


@adapter("scheduler.gpu_partition", exact_text=("error",))
def gpu_partition(given: dict[str, Json]) -> dict[str, Json]:
    table = None
    if given.get("partition_table") is not None:
        table = parse_gpu_partitions({keys.GPU_PARTITIONS: json.dumps(given["partition_table"])})
    spec = None
    if given.get("gpu-partition-spec") is not None:
        spec = parse_gpu_partition_spec({keys.GPU_PARTITION_SPEC: json.dumps(given["gpu-partition-spec"])})
    used: list[int] = given.get("used_minors") or []
    healthy: list[int] = given.get("healthy_minors") or []
    chosen = choose_partition(table, given["gpus"], used, healthy, spec)
    return {"error": chosen.reason} if isinstance(chosen, Refusal) else {"minors": list(chosen)}


_POD_KEYS = {
    "device-allocate-hint": keys.DEVICE_ALLOCATE_HINT,
    "device-joint-allocate": keys.DEVICE_JOINT_ALLOCATE,
    "gpu-partition-spec": keys.GPU_PARTITION_SPEC,
}


@adapter("scheduler.device_allocate", resource_lists=("resources",), whole=("allocations",))
def device_allocate(given: dict[str, Json]) -> dict[str, Json]:
    document = dict(given["device"])
    document["metadata"] = {"name": "node", **(document.get("metadata") or {})}
    _, inventory, _ = read_device(document)
    use = DeviceUse()
    if given.get("allocated"):
        use.take("others", parse_allocation({keys.DEVICE_ALLOCATED: json.dumps(given["allocated"])}).devices)
    asked = given["pod"]
    annotations = {key: json.dumps(asked[name]) for name, key in _POD_KEYS.items() if asked.get(name) is not None}
    pod = PodDevices(parse_amounts(asked.get("requests") or {}), annotations, asked.get("labels"))
    if pod.error:
        return {"error": pod.error}
    affinity = given.get("numa_affinity")
    terms = Terms(
        zones=None if affinity is None else frozenset(affinity),
        scoring=_scoring(given.get("scoring")),
    )
    node = NodeDevices(inventory=inventory, use=use, labels=given.get("node_labels") or {})
    given_devices = allocate(node, pod, terms)
    if isinstance(given_devices, Refusal):
        return {"error": given_devices.reason}
    found: dict[str, list[Json]] = {}
    for device in given_devices:
        entry: dict[str, Json] = {"minor": device.minor, "resources": _texts(device.amounts)}
        if device.virtual_functions:
            entry["vfs"] = [each.bus_id for each in device.virtual_functions]
        found.setdefault(device.type, []).append(entry)
    return {"allocations": found}
