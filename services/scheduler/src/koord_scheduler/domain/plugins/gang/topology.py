"""The network of the cluster as a tree of domains, updated node by node.

The layers of the ClusterNetworkTopology object declare label keys. The domain of a node at a layer is the value of
the first such label that the node has. If the node has no such label at the lowest layer, it is alone in a domain of
its own name. If it has none at a higher layer, it is outside the topology. A domain is identified by its layer and
name. If its nodes name different parents, the node with the smallest name decides.

Source: scheduler-core spec, 9; protocol spec, 9.8
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """One domain in `status.detailStatus`: its parent, its children and its number of nodes. `childTopologyNames` is
    empty if the children are nodes.
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
    """A layer of the network between the cluster and the nodes, such as spine or block."""

    name: str
    # Label keys in order. The value of the first one that a node has is the name of its domain.
    label_keys: tuple[str, ...]


def layers_of(topology: ClusterNetworkTopology) -> tuple[Layer, ...]:
    """Return the layers between the cluster and the nodes, from the top. `topology`: the object. Its layers name their
    parents; the order follows the parents from the node layer up. Raises InvalidInput: the node layer or a parent is
    not declared, or the parents form a circle.
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


Path = tuple[str, ...]
"""The domain names of a node, from the top layer to the lowest layer above the nodes."""


@dataclass(slots=True, kw_only=True, eq=False)
class Domain:
    """One domain of the network: the cluster (name ""), a domain of a layer, or a node."""

    layer: str  # Name of its layer
    name: str  # Name within the layer
    depth: int  # Distance from the cluster, which has depth 0
    parent: "Domain | None" = None  # The domain above; None for the cluster
    children: dict[str, "Domain"] = field(default_factory=dict[str, "Domain"])  # The domains directly below, by name
    # Name of a parent -> nodes below this domain whose labels name that parent.
    claims: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])

    @property
    def id(self) -> str:
        """Return `layer/name`; for the cluster only the name of its layer."""
        return f"{self.layer}/{self.name}" if self.name else self.layer

    @property
    def is_node(self) -> bool:
        """Return whether the domain is a single node."""
        return self.layer == NODE_LAYER


class NetworkTopology:
    """The network of the cluster as a tree: the cluster, domains of the layers, and nodes as leaves. `nodes`: (name,
    labels) of the nodes to begin with.
    """

    def __init__(self, layers: Sequence[Layer], nodes: Iterable[tuple[str, Mapping[str, str]]] = ()) -> None:
        self.layers = tuple(layers)  # The layers between the cluster and the nodes, from the top
        self.moves = 0  # Version of the tree. It grows with every change.
        self.root = Domain(layer=CLUSTER_LAYER, name="", depth=0)  # The cluster
        self._domains: list[dict[str, Domain]] = [{} for _ in self.layers]
        self._paths: dict[str, Path] = {}
        self._leaves: dict[str, Domain] = {}
        for name, labels in nodes:
            self.put_node(name, labels)

    def leaf(self, node: str) -> Domain | None:
        """Return the leaf of a node in the tree, or None if the node is outside the topology."""
        return self._leaves.get(node)

    def depth_of(self, layer: str) -> int | None:
        """Return the depth of the layer (the cluster is 0), or None if there is no such layer."""
        names = [CLUSTER_LAYER, *(each.name for each in self.layers), NODE_LAYER]
        return names.index(layer) if layer in names else None

    def domains_at(self, depth: int) -> list[Domain]:
        """Return all domains at a depth, by name. Depth 0 is the cluster, the greatest depth are the nodes."""
        if depth == 0:
            return [self.root]
        found = self._leaves if depth > len(self.layers) else self._domains[depth - 1]
        return [found[name] for name in sorted(found)]

    def put_node(self, name: str, labels: Mapping[str, str]) -> None:
        """Add a node to the tree, or update its labels. No-op if its domains stay the same. A node that has no label of
        a layer above the lowest is removed from the tree.
        """
        path = self._path(name, labels)
        if path == self._paths.get(name):
            return
        self.remove_node(name)
        if path is None:
            return
        self._paths[name] = path
        self.moves += 1
        parent = self.root
        for depth, value in enumerate(path):
            domain = self._domains[depth].get(value)
            if domain is None:
                domain = Domain(layer=self.layers[depth].name, name=value, depth=depth + 1)
                self._domains[depth][value] = domain
            domain.claims.setdefault(path[depth - 1] if depth else "", {})[name] = None
            self._settle(domain)
            parent = domain
        leaf = Domain(layer=NODE_LAYER, name=name, depth=len(self.layers) + 1, parent=parent)
        parent.children[name] = self._leaves[name] = leaf

    def remove_node(self, name: str) -> None:
        """Remove a node, and all domains that are empty without it."""
        path = self._paths.pop(name, None)
        if path is None:
            return
        self.moves += 1
        leaf = self._leaves.pop(name)
        if leaf.parent is not None:
            del leaf.parent.children[name]
        for depth in reversed(range(len(path))):
            domain = self._domains[depth][path[depth]]
            claimed = path[depth - 1] if depth else ""
            del domain.claims[claimed][name]
            if not domain.claims[claimed]:
                del domain.claims[claimed]
            if domain.claims:
                self._settle(domain)
            else:
                del self._domains[depth][domain.name]
                if domain.parent is not None:
                    del domain.parent.children[domain.name]

    def detail_status(self) -> list[DomainStatus]:
        """Return the domains for `status.detailStatus` of the ClusterNetworkTopology: all except the nodes. Parents
        come before children, children by name.
        """
        found: list[DomainStatus] = []
        self._describe(self.root, found)
        return found

    def _describe(self, domain: Domain, found: list[DomainStatus]) -> int:
        status = DomainStatus(topology_info=_info(domain))
        found.append(status)
        if domain.parent is not None:
            status.parent_topology_info = _info(domain.parent)
        children = [domain.children[name] for name in sorted(domain.children)]
        if children:
            status.child_topology_layer = children[0].layer
        if domain.depth == len(self.layers):
            status.node_num = len(children)
        else:
            status.child_topology_names = [child.name for child in children]
            status.node_num = sum(self._describe(child, found) for child in children)
        return status.node_num

    def _path(self, node: str, labels: Mapping[str, str]) -> Path | None:
        values: list[str] = []
        for depth, layer in enumerate(self.layers):
            value = next((labels[key] for key in layer.label_keys if key in labels), None)
            if value is None:
                if depth + 1 < len(self.layers):
                    return None
                value = node
            values.append(value)
        return tuple(values)

    def _settle(self, domain: Domain) -> None:
        """Attach the domain to the parent that its nodes name."""
        if len(domain.claims) == 1:
            name = next(iter(domain.claims))
        else:
            name = min(domain.claims, key=lambda claimed: min(domain.claims[claimed]))
        parent = self._domains[domain.depth - 2][name] if domain.depth > 1 else self.root
        if domain.parent is parent:
            return
        if domain.parent is not None:
            del domain.parent.children[domain.name]
        domain.parent = parent
        parent.children[domain.name] = domain


def _info(domain: Domain) -> TopologyInfo:
    return TopologyInfo(topology_layer=domain.layer, topology_name=domain.name)
