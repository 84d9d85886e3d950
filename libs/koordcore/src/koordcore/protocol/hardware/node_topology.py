"""The NodeResourceTopology object: the NUMA zones of a node and facts about its processor.

Source: protocol spec, 9 (NodeResourceTopology); manager spec, 5.4, 5.6.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.amplification import CpuBasicInfo
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.objects import KubeStruct, ObjectMeta, object_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

_ZONE_ID = re.compile(r".*-0*([0-9]{1,10})", re.DOTALL)
_HIGHEST_ID: Final = (1 << 31) - 1  # The zones in the annotation of an allocation are int32


class ZoneResource(KubeStruct):
    """Capacity, allocatable and available amount of one resource in a NUMA zone (object `zones[].resources[]`)."""

    name: str = ""
    capacity: str | int | float = "0"
    allocatable: str | int | float = "0"
    available: str | int | float = "0"


class Zone(KubeStruct):
    """A NUMA zone: name, type and resources (object `zones[]` of a NodeResourceTopology)."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = []

    @property
    def id(self) -> int | None:
        """Number of the NUMA node: the digits after the last `-` of the name. None if there are no digits, or if the
        number is not an int32.

        Source: manager spec, 5.4.
        """
        match = _ZONE_ID.fullmatch(self.name)
        number = int(match[1]) if match else None
        return None if number is None or number > _HIGHEST_ID else number


class NodeResourceTopology(KubeStruct):
    """A NodeResourceTopology object (topology.node.k8s.io/v1alpha1): the NUMA zones of one node. It has the node's
    name.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    topology_policies: list[str] = []
    zones: list[Zone] = []

    def cpu_basic_info(self) -> CpuBasicInfo | None:
        """Return model and settings of the node's processor; None if its annotation is absent or invalid. The
        annotation is `node.koordinator.sh/cpu-basic-info`.
        """
        try:
            return parse_present(
                self.metadata.annotations, keys.CPU_BASIC_INFO, lambda text: lenient_json.decode(text, CpuBasicInfo)
            )
        except InvalidInput:
            return None


def topology_from(raw: Mapping[str, Any] | None) -> NodeResourceTopology | None:
    """Convert a stored JSON object to a NodeResourceTopology; None if there is no object or it is invalid."""
    try:
        return None if raw is None else object_from_json(raw, NodeResourceTopology)
    except codec.DecodeError:
        return None
