"""The layers of the cluster's network, as the ClusterNetworkTopology object declares them.

Source:
    scheduler-core spec, 9; protocol spec, 9.8
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.protocol.objects import KubeStruct, ObjectMeta
from koordcore.values.invalid import InvalidInput

CLUSTER_LAYER: Final = "ClusterTopologyLayer"
NODE_LAYER: Final = "NodeTopologyLayer"
READ_OBJECT: Final = "default"
"""Name of the only ClusterNetworkTopology that is read."""


class LayerSpec(KubeStruct):
    """One entry of `spec.networkTopologySpec`: a layer, its parent layer, and the node labels of its domains."""

    topology_layer: str = ""
    parent_topology_layer: str = ""
    label_key: list[str] = []


class ClusterNetworkTopologySpec(KubeStruct):
    """The `spec` of a ClusterNetworkTopology."""

    network_topology_spec: list[LayerSpec] = []


class TopologyInfo(KubeStruct):
    """The layer and the name of a domain."""

    topology_layer: str = ""
    topology_name: str = ""


class DomainStatus(KubeStruct):
    """One domain in `status.detailStatus`: its parent, its children and its number of nodes.

    `childTopologyNames` is empty if the children are nodes.
    """

    topology_info: TopologyInfo = msgspec.field(default_factory=TopologyInfo)
    parent_topology_info: TopologyInfo | None = None
    child_topology_layer: str = ""
    child_topology_names: list[str] = []
    node_num: int = msgspec.field(default=0)


class ClusterNetworkTopology(KubeStruct):
    """A `scheduling.koordinator.sh/v1alpha1` ClusterNetworkTopology."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ClusterNetworkTopologySpec = msgspec.field(default_factory=ClusterNetworkTopologySpec)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the network between the cluster and the nodes, such as spine or block.

    Attributes:
        name: Name of the layer.
        label_keys: Label keys in order. The value of the first one that a node has is the name of its domain.
    """

    name: str
    label_keys: tuple[str, ...]


def layers_of(topology: ClusterNetworkTopology) -> tuple[Layer, ...]:
    """Return the layers between the cluster and the nodes, from the top.

    Args:
        topology: The object. Its layers name their parents; the order follows the parents from the node layer up.

    Raises:
        InvalidInput: The node layer or a parent is not declared, or the parents form a circle.
    """
    specs = {spec.topology_layer: spec for spec in topology.spec.network_topology_spec}
    path = "spec.networkTopologySpec"
    if NODE_LAYER not in specs:
        raise InvalidInput(f"a list with the layer {NODE_LAYER}", sorted(specs), path)
    layers: list[Layer] = []
    met = {NODE_LAYER}
    name = specs[NODE_LAYER].parent_topology_layer
    while name not in ("", CLUSTER_LAYER):
        if name in met:
            raise InvalidInput("a chain of layers without a circle", name, f"{path}[].parentTopologyLayer")
        if name not in specs:
            raise InvalidInput("a declared layer", name, f"{path}[].parentTopologyLayer")
        met.add(name)
        layers.append(Layer(name, tuple(specs[name].label_key)))
        name = specs[name].parent_topology_layer
    return tuple(reversed(layers))
