"""Extension points that change the pod or the nodes that other plugins see, permanently or for one cycle.

    PodTransformer           changes the pod when it comes in, before any plugin reads it
    BeforePreFilterPlugin    changes the pod for one cycle
    AfterPreFilterPlugin     changes nothing; it sees the answers of all PreFilter plugins
    BeforeFilterPlugin       changes the pod and the nodes for the filters of one cycle
    BeforeScorePlugin        changes the pod and the feasible nodes for the scores of one cycle
    ResizePodPlugin          changes the requests of the pod permanently, once its node is known

Changes for one cycle end when a node is chosen. The node, quotas and the log count the pod as it came in, or as it
was resized.

Source:
    scheduler-core spec, 1 (steps 3 to 10), 3 (transformers)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordcore.protocol.objects import Node, Pod

from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.framework.plugin import Plugin


class PodTransformer(Plugin, Protocol):
    """A plugin that changes pods when the scheduler first reads them and after each change of their object."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod that every plugin of the profile sees, or the same object if nothing changes.

        The result may depend only on the spec, the namespace, labels, annotations and owners. The method must be
        idempotent.

        Raises:
            InvalidInput: The pod is invalid. It is not scheduled.
        """
        ...


class BeforePreFilterPlugin(Plugin, Protocol):
    """A plugin that can replace the pod by a changed copy for one scheduling cycle."""

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """Return a copy that replaces the pod in this cycle, None to keep the pod, or reject the pod.

        Args:
            pod: The pod of the attempt.
            now: Present time in Unix seconds.

        Raises:
            InvalidInput: The copy has an invalid quantity.
        """
        ...


class AfterPreFilterPlugin(Plugin, Protocol):
    """A plugin that can reject a pod after all PreFilter plugins, because of the restrictions that they returned."""

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Reject the pod, or return None to continue the attempt.

        Args:
            pod: The pod of the attempt.
            found: (plugin name, restriction) of each PreFilter plugin that restricted the nodes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Temporary changes of one node that the filters of one cycle see.

    The node itself and its accounting do not change.

    Attributes:
        node: A node object that replaces labels, taints, images, allocatable and the unschedulable flag. None: they
            stay.
        without: Uids of pods on the node that are not counted.
        further_pods: Pods that are counted on the node in addition.
    """

    node: Node | None = None
    without: frozenset[str] = frozenset()
    further_pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The pods and nodes that the filters of one cycle see instead of the real ones.

    Attributes:
        pods: (rows, copy): the nodes at these positions in the node columns, shape (K,), see the copy of the pod. No
            row occurs twice. Nodes that are not mentioned see the unchanged pod.
        nodes: Position in the node columns -> the changes of that node. Other nodes are seen unchanged.
    """

    pods: Sequence[tuple[Rows, Pod]] = ()
    nodes: Mapping[int, NodeView] = field(default_factory=dict[int, NodeView])


class BeforeFilterPlugin(Plugin, Protocol):
    """A plugin that can change the pod and the nodes that filters and preemption of one cycle see.

    Plugins are called in order; each sees the changes of those before it.
    """

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """Return what filters and preemption see in this cycle, None for no change, or reject the pod.

        Args:
            pod: The pod, or a copy that an earlier plugin made for some nodes.
            nodes: All nodes.
            rows: Positions of the nodes that see `pod`, shape (K,).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The nodes that are scored in one cycle, and the pod for which they are scored.

    Attributes:
        pod: A copy of the pod that scores see; None for the pod itself.
        rows: Positions of the feasible nodes to score, shape (K,); None for all feasible nodes.
    """

    pod: Pod | None = None
    rows: Rows | None = None


class BeforeScorePlugin(Plugin, Protocol):
    """A plugin that can change the pod and the feasible nodes that the scores of one cycle see."""

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """Return the pod and the nodes that the scores of this cycle shall see, None for no change, or reject the pod.

        Called if two or more nodes are feasible and no plugin prefers one of them (`Candidates.preferred`).

        Args:
            pod: The pod of the attempt.
            nodes: All nodes.
            rows: Positions of the feasible nodes, ascending, shape (K,).
        """
        ...


class ResizePodPlugin(Plugin, Protocol):
    """A plugin that can change the requests of a pod permanently once its node is chosen (feature gate ResizePod)."""

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """Return a copy of the pod with other resources for this node, None to keep its resources, or reject the pod.

        Args:
            pod: The pod of the attempt.
            node: Name of the chosen node.

        Raises:
            InvalidInput: The new resources have an invalid quantity.
        """
        ...
