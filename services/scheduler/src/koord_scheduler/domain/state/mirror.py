"""Objects as the API and the manager describe them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from koordcore.events.objects import ConfigAccepted, CustomObjectObserved, NamespaceObserved, WorkloadObserved
from koordcore.protocol.objects import Node

from koord_scheduler.domain.forgetting import Forgetting
from koord_scheduler.domain.nodes.policies import NodePolicy


@dataclass(slots=True)
class Mirror:
    """The last state of all objects that placement reads, apart from pods.

    Attributes:
        nodes: Name -> node.
        policies: Name of a node -> what the manager has decided about it.
        node_gone_by: Name of a deleted node -> id of the event that deleted it.
        objects: Aggregate id -> custom object.
        namespaces: Name -> namespace.
        workloads: Uid -> workload controller.
        configs: Aggregate id -> ConfigMap, for those that a plugin reads.
    """

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    policies: dict[str, NodePolicy] = field(default_factory=dict[str, NodePolicy])
    node_gone_by: dict[str, str] = field(default_factory=dict[str, str])
    objects: dict[str, CustomObjectObserved] = field(default_factory=dict[str, CustomObjectObserved])
    namespaces: dict[str, NamespaceObserved] = field(default_factory=dict[str, NamespaceObserved])
    workloads: dict[str, WorkloadObserved] = field(default_factory=dict[str, WorkloadObserved])
    configs: dict[str, ConfigAccepted] = field(default_factory=dict[str, ConfigAccepted])
    _forgetting: Forgetting = field(default_factory=Forgetting)

    def prune(self, has_pods: Callable[[str], bool]) -> bool:
        """Forget the deleted nodes without pods. No-op until `Forgetting` requires a search.

        Args:
            has_pods: Whether the log has placed a pod on the node with this name.

        Returns:
            Whether the nodes were searched.
        """
        gone_by = self.node_gone_by
        if not self._forgetting.is_due(len(gone_by)):
            return False
        for name in [name for name in gone_by if not has_pods(name)]:
            del gone_by[name]
            self.policies.pop(name, None)  # the log may have stored a decision about the node after its deletion
        self._forgetting.searched(len(gone_by))
        return True
