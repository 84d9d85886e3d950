"""NUMA hints of devices: on which sets of NUMA nodes a pod's devices can be allocated.

Source: scheduler-fine-grained spec, 2.10.
"""

from itertools import combinations
from typing import Final

from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.framework.topology_hints import NO_HINTS, Hint, Hints, zones_of
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.picking import NOT_RESERVED, DeviceScoring, Reserved
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal

SAME_GPUS: Final = 500
"""Score of NUMA nodes that give the GPUs that the whole node would give. It outweighs CPU scores."""
_MOST_NUMA_NODES: Final = 8
"""More NUMA nodes have too many subsets; only the whole node is tried there."""


def device_hints(
    node: NodeDevices, pod: PodDevices, scoring: DeviceScoring, reserved: Reserved = NOT_RESERVED
) -> Hints | Refusal:
    """Return on which sets of NUMA nodes the pod's devices can be allocated, as hints for each device type. `reserved`:
    devices that the pod's Reservations hold for it. Result: Device type -> hints, equal for all types. The smallest
    sets are preferred. Of more than 8 NUMA nodes, only all together are a hint. `NO_HINTS` if no device of the node
    states a NUMA node. The refusal of the node if all NUMA nodes together do not suffice.
    """
    numa_nodes = node.inventory.numa_nodes
    if not numa_nodes:
        return NO_HINTS
    whole = allocate(node, pod, Terms(zones=frozenset(numa_nodes), scoring=scoring, reserved=reserved))
    if isinstance(whole, Refusal):
        return whole
    gpus = _gpus(whole)
    sizes = range(1, len(numa_nodes) + 1) if len(numa_nodes) <= _MOST_NUMA_NODES else (len(numa_nodes),)
    hints: list[Hint] = []
    smallest = 0
    for size in sizes:
        for subset in combinations(numa_nodes, size):
            found = whole
            if size < len(numa_nodes):
                given = allocate(node, pod, Terms(zones=frozenset(subset), scoring=scoring, reserved=reserved))
                if isinstance(given, Refusal):
                    continue
                found = given
            smallest = smallest or size
            score = SAME_GPUS if _gpus(found) == gpus else 0
            hints.append(Hint(zones_of(subset), preferred=size == smallest, score=score))
    return {type_: tuple(hints) for type_ in pod.requests}


def _gpus(devices: tuple[AllocatedDevice, ...]) -> list[int]:
    return [device.minor for device in devices if device.type == GPU_TYPE]
