"""The largest NUMA zones and GPU groups that any node of the cluster has, kept up to date at a constant cost per event.

Nodes of one hardware model have equal shapes, so only the number of nodes of each shape is stored. The cost of a query
grows with the number of models, not of nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from koordcore.protocol.hardware.devices import read_devices
from koordcore.protocol.hardware.node_topology import ZoneResource, topology_from
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.stories.device_cards import GPU_TYPE
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

_GIB = 1 << 30
_CORE = 1000


class ZoneShape(NamedTuple):
    """The number of NUMA zones of a node, and the amounts of its largest zone."""

    zones: int = 0
    cpu_milli: int = 0  # Largest CPU of a zone in milli-cores, rounded up to whole cores
    memory_bytes: int = 0  # Largest memory of a zone, rounded up to whole GiB


class GpuShape(NamedTuple):
    node: int = 0
    zone: int = 0  # Most GPUs in one of its NUMA zones
    switch: int = 0  # Most GPUs under one of its PCIe switches


S = TypeVar("S", ZoneShape, GpuShape)


class _Shapes(Generic[S]):
    """Shapes by node, and the number of nodes of each shape."""

    def __init__(self) -> None:
        self._of_node: dict[str, S] = {}
        self._count: Counter[S] = Counter()

    def put(self, node: str, shape: S | None) -> None:
        before = self._of_node.pop(node, None)
        if before is not None:
            self._count[before] -= 1
            if not self._count[before]:
                del self._count[before]
        if shape is not None:
            self._of_node[node] = shape
            self._count[shape] += 1

    def largest(self) -> tuple[int, ...] | None:
        """Return the largest value of each field over all nodes; None if no node has a shape."""
        return tuple(max(values) for values in zip(*self._count, strict=True)) if self._count else None


class HardwareShapes:
    """The size of the nodes: NUMA zones from NodeResourceTopology objects, and GPUs from Device objects.

    Admission uses the maxima to warn about requests that no node can meet.
    """

    def __init__(self) -> None:
        self._zones = _Shapes[ZoneShape]()
        self._gpus = _Shapes[GpuShape]()

    @property
    def largest_zone(self) -> ZoneShape | None:
        """The maximum of each field of `ZoneShape` over all nodes; None if no node reports zones."""
        found = self._zones.largest()
        return None if found is None else ZoneShape(*found)

    @property
    def most_gpus(self) -> GpuShape | None:
        """The maximum of each field of `GpuShape` over all nodes; None if no Device object has healthy GPUs."""
        found = self._gpus.largest()
        return None if found is None else GpuShape(*found)

    def topology_observed(self, node: str, document: Mapping[str, object] | None) -> None:
        """Set the zones of a node from its NodeResourceTopology object, or remove them if the object is None."""
        topology = topology_from(document)
        amounts = [_amounts(zone.resources) for zone in topology.zones] if topology is not None else []
        cpus = [_rounded_up(each.get(CPU, 0), _CORE) for each in amounts]
        memory = [_rounded_up(each.get(MEMORY, 0), _GIB) for each in amounts]
        self._zones.put(node, ZoneShape(len(amounts), max(cpus), max(memory)) if amounts else None)

    def device_observed(self, node: str, document: Mapping[str, object] | None) -> None:
        """Set the GPUs of a node from its Device object, or remove them if the object is None."""
        devices = read_devices(document)[0] if document is not None else []
        gpus = [device for device in devices if device.type == GPU_TYPE and device.health]
        places = [gpu.topology for gpu in gpus if gpu.topology is not None]
        zones = _most(str(place.node_id) for place in places)
        switches = _most(place.pcie_id for place in places)
        self._gpus.put(node, GpuShape(len(gpus), zones, switches) if gpus else None)


def _amounts(resources: Iterable[ZoneResource]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for resource in resources:
        try:
            found.update(parse_amounts({resource.name: resource.allocatable}))
        except InvalidInput:
            continue
    return found


def _rounded_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit


def _most(groups: Iterable[str]) -> int:
    return max(Counter(groups).values(), default=0)
