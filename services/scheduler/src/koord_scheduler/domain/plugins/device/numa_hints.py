"""NUMA hints of devices: on which sets of NUMA nodes a pod's devices can be allocated.

Source: scheduler-fine-grained spec, 2.10.
"""

from itertools import combinations
from typing import Final

from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.framework.topology_hints import NO_HINTS, Hint, Hints, Zones, ids_of, zones_of
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.picking import NOT_RESERVED, DeviceScoring, Reserved, is_fitting
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
    is_joint = pod.joint is not None or bool(pod.designated) or reserved is not NOT_RESERVED
    each_type = () if is_joint else tuple(_OfType(node, pod, type_, scoring) for type_ in pod.requests)
    hints: list[Hint] = []
    smallest = 0
    for size in sizes:
        for subset in combinations(numa_nodes, size):
            zones, minors = zones_of(subset), gpus
            if size < len(numa_nodes):
                if is_joint:
                    given = allocate(node, pod, Terms(zones=frozenset(subset), scoring=scoring, reserved=reserved))
                    if isinstance(given, Refusal):
                        continue
                    minors = _gpus(given)
                else:
                    found = [of_type.given(zones) for of_type in each_type]
                    if None in found:
                        continue
                    minors = [minor for of_type in found if of_type is not None for minor in of_type]
            smallest = smallest or size
            hints.append(Hint(zones, preferred=size == smallest, score=SAME_GPUS if minors == gpus else 0))
    return {type_: tuple(hints) for type_ in pod.requests}


class _OfType:
    """What the devices of one type say of sets of NUMA nodes, if no rule joins the types: each allocation is made once
    for all sets that it cannot tell apart.
    """

    def __init__(self, node: NodeDevices, pod: PodDevices, type_: str, scoring: DeviceScoring) -> None:
        self._node = node
        self._pod = pod
        self._type = type_
        self._scoring = scoring
        self._enough: list[Zones] = []
        self._known: dict[Zones, list[int] | None] = {}
        used = node.use.amounts.get(type_, {})
        cards = [card for card in node.inventory.cards.get(type_, ()) if card.has_topology]
        per_device = pod.requests[type_].per_device
        may_give = [
            card.numa
            for card in cards
            if card.minor not in used or is_fitting(card, node.use.free(card), per_device) or type_ != GPU_TYPE
        ]
        self._relevant = zones_of({numa for numa in may_give if numa >= 0})

    def given(self, zones: Zones) -> list[int] | None:
        """Return the minor numbers of the GPUs that these NUMA nodes give, none for other types; None if they cannot
        give the devices.
        """
        if self._type == GPU_TYPE:
            zones &= self._relevant
            if zones not in self._known:
                self._known[zones] = self._allocated(zones)
            return self._known[zones]
        if any(enough & zones == enough for enough in self._enough):
            return []  # more NUMA nodes have more devices
        if self._allocated(zones) is None:
            return None
        self._enough.append(zones)
        return []

    def _allocated(self, zones: Zones) -> list[int] | None:
        terms = Terms(zones=frozenset(ids_of(zones)), scoring=self._scoring, types=frozenset((self._type,)))
        found = allocate(self._node, self._pod, terms)
        return None if isinstance(found, Refusal) else _gpus(found)


def _gpus(devices: tuple[AllocatedDevice, ...]) -> list[int]:
    return [device.minor for device in devices if device.type == GPU_TYPE]
