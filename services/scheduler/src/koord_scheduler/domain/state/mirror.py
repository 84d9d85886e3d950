"""Objects as the API and the manager describe them."""

from dataclasses import dataclass, field

from koordcore.events.objects.custom import CustomObjectObserved
from koordcore.events.objects.mirror import ConfigAccepted, NamespaceObserved, WorkloadObserved
from koordcore.protocol.objects import Node

from koord_scheduler.domain.nodes.policies import NodePolicy


@dataclass(slots=True)
class Mirror:
    """The last state of all objects that placement reads, apart from pods.

    Attributes:
        nodes: Name -> node.
        policies: Name of a node -> what the manager has decided about it.
        node_gone_by: Name of a deleted node -> id of the event that deleted it. If there are more than `most_gone`,
            those without pods are forgotten.
        most_gone: See `node_gone_by`.
        objects: Aggregate id -> custom object.
        namespaces: Name -> namespace.
        workloads: Uid -> workload controller.
        configs: Aggregate id -> ConfigMap, for those that a plugin reads.
    """

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    policies: dict[str, NodePolicy] = field(default_factory=dict[str, NodePolicy])
    node_gone_by: dict[str, str] = field(default_factory=dict[str, str])
    most_gone: int = 0
    objects: dict[str, CustomObjectObserved] = field(default_factory=dict[str, CustomObjectObserved])
    namespaces: dict[str, NamespaceObserved] = field(default_factory=dict[str, NamespaceObserved])
    workloads: dict[str, WorkloadObserved] = field(default_factory=dict[str, WorkloadObserved])
    configs: dict[str, ConfigAccepted] = field(default_factory=dict[str, ConfigAccepted])
