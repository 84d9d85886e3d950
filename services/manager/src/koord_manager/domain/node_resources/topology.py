"""The two objects of a node beside itself: its NUMA zones with the processor's facts, and its devices.

source    manager spec, 5.4, 5.6, 5.10, 5.11; protocol spec, 9 (NodeResourceTopology, Device)
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from koordcore.events.agents.nodestate import NodeTopologyReported
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.amplification import CpuBasicInfo
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.objects import KubeStruct, ObjectMeta, Quantities, object_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import quantity_of

T = TypeVar("T", bound=KubeStruct)

_ZONE_ID = re.compile(r".*-([0-9]+)", re.DOTALL)


class ZoneResource(KubeStruct):
    """`zones[].resources[]`."""

    name: str = ""
    capacity: str | int | float = "0"
    allocatable: str | int | float = "0"
    available: str | int | float = "0"


class Zone(KubeStruct):
    """`zones[]`."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = []

    @property
    def id(self) -> int | None:
        """The NUMA node: the number after the last `-` of the name; None when there is none.

        source    manager spec, 5.4
        """
        match = _ZONE_ID.fullmatch(self.name)
        return int(match[1]) if match else None


class NodeResourceTopology(KubeStruct):
    """topology.node.k8s.io/v1alpha1, named as its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    zones: list[Zone] = []

    def cpu_basic_info(self) -> CpuBasicInfo | None:
        """Model and settings of the processor; None when the agent has not reported them, or not readably."""
        try:
            return parse_present(
                self.metadata.annotations, keys.CPU_BASIC_INFO, lambda text: lenient_json.decode(text, CpuBasicInfo)
            )
        except InvalidInput:
            return None


class DeviceInfo(KubeStruct):
    """`spec.devices[]`."""

    type: str = ""
    health: bool = False
    resources: Quantities = {}


class DeviceSpec(KubeStruct):
    """`spec` of a Device."""

    devices: list[DeviceInfo] = []


class Device(KubeStruct):
    """scheduling.koordinator.sh/v1alpha1, named as its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceSpec = msgspec.field(default_factory=DeviceSpec)


def topology_from(raw: Mapping[str, Any] | None) -> NodeResourceTopology | None:
    """The topology of a stored object; None when there is none, or none that can be read."""
    return _read(raw, NodeResourceTopology)


def topology_of_agent(report: NodeTopologyReported) -> NodeResourceTopology:
    """The topology as an agent of ours reports it."""
    return NodeResourceTopology(
        metadata=ObjectMeta(annotations=report.annotations),
        zones=[
            Zone(
                name=zone.name,
                type="Node",
                resources=[
                    ZoneResource(
                        name=name,
                        capacity=_text(name, zone.capacity.get(name, amount)),
                        allocatable=_text(name, amount),
                        available=_text(name, amount),
                    )
                    for name, amount in sorted(zone.allocatable.items())
                ],
            )
            for zone in report.zones
        ],
    )


def _text(name: str, amount: int) -> str:
    return quantity_of(name, amount).canonical()


def device_from(raw: Mapping[str, Any] | None) -> Device | None:
    """The devices of a stored object; None when there is none, or none that can be read."""
    return _read(raw, Device)


def _read(raw: Mapping[str, Any] | None, kind: type[T]) -> T | None:
    if raw is None:
        return None
    try:
        return object_from_json(raw, kind)
    except codec.DecodeError:
        return None
