"""Find requests of a pod that no present node of the cluster can meet; they are warnings, because nodes may be added.

Source:
    scheduler-fine-grained spec, 1.5, 2.2, 2.4
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.devices import parse_device_hints
from koordcore.protocol.hardware.device_requests import GPU_TYPE, device_requests
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.resource_names import CPU, MEMORY, amount_text
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.hardware_shapes import HardwareShapes

_SINGLE: Final = "SingleNUMANode"
_REQUESTS: Final = "spec.containers[*].resources.requests"


class _NumaSpec(msgspec.Struct):
    policy: str = msgspec.field(default="", name="numaTopologyPolicy")


def impossible_requests(pod: Pod, shapes: HardwareShapes) -> tuple[str, ...]:
    """Return a warning for each request that exceeds the largest NUMA zone, node or PCIe switch group of the cluster.

    Cpu and memory are compared with the largest zone, only for a pod whose annotation requires a single NUMA node. If
    the pod requires its GPUs in one zone or under one switch, their number is compared with the most that any zone or
    switch has. Otherwise it is compared with the most that any node has.

    Malformed requests and annotations get no warning here, because other rules report them.
    """
    try:
        requests = pod_requests(pod)
    except InvalidInput:
        return ()
    return (*_beyond_a_zone(pod, requests, shapes), *_beyond_the_gpus(pod, requests, shapes))


def _beyond_a_zone(pod: Pod, requests: dict[str, int], shapes: HardwareShapes) -> Iterator[str]:
    text, largest = pod.metadata.annotations.get(keys.NUMA_TOPOLOGY_SPEC), shapes.largest_zone
    if not text or largest is None:
        return
    try:
        policy = lenient_json.decode(text, _NumaSpec).policy
    except InvalidInput:
        return
    if policy == _SINGLE:
        for name, limit in ((CPU, largest.cpu_milli), (MEMORY, largest.memory_bytes)):
            if requests.get(name, 0) > limit:
                asked, most = amount_text(name, requests[name]), amount_text(name, limit)
                yield (
                    f"{_REQUESTS}[{name}]: policy {_SINGLE} needs it in one zone, got {asked};"
                    f" the largest zone of the cluster has {most}"
                )


def _beyond_the_gpus(pod: Pod, requests: dict[str, int], shapes: HardwareShapes) -> Iterator[str]:
    most = shapes.most_gpus
    try:
        gpu = device_requests(requests).get(GPU_TYPE)
        hint = parse_device_hints(pod.metadata.annotations).get(GPU_TYPE)
    except InvalidInput:
        return
    if gpu is None or most is None:
        return
    scopes = {"PCIe": ("PCIe switch", most.switch), "NUMANode": ("NUMA zone", most.zone)}
    scope, limit = scopes.get(hint.required_scope if hint is not None else "", ("node", most.node))
    if gpu.count > limit:
        yield (
            f"{_REQUESTS}: needs GPUs of one {scope}, got {gpu.count};"
            f" the {scope} with most healthy GPUs has {limit} in the Device objects of the cluster"
        )
