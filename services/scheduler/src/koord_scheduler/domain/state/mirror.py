"""Objects as the API and the manager describe them."""

from dataclasses import dataclass, field

from koordcore.events.objects.custom import CustomObjectObserved
from koordcore.events.objects.mirror import NamespaceObserved, WorkloadObserved
from koordcore.protocol.objects import Node

from koord_scheduler.domain.nodes.policies import NodePolicy


@dataclass(slots=True)
class Mirror:
    """The objects that placement reads, without pods.

    Attributes:
        nodes: Node by name.
        policies: What the manager has decided about a node, by name.
        node_gone_by: Id of the event that deleted the node, by name.
        objects: Custom object by id of its aggregate.
        namespaces: Namespace by name.
        workloads: Workload controller by uid.
    """

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    policies: dict[str, NodePolicy] = field(default_factory=dict[str, NodePolicy])
    node_gone_by: dict[str, str] = field(default_factory=dict[str, str])
    objects: dict[str, CustomObjectObserved] = field(default_factory=dict[str, CustomObjectObserved])
    namespaces: dict[str, NamespaceObserved] = field(default_factory=dict[str, NamespaceObserved])
    workloads: dict[str, WorkloadObserved] = field(default_factory=dict[str, WorkloadObserved])
