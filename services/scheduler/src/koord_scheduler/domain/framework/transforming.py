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
    """A plugin that changes pods when they come in."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod that every plugin of the profile sees, or the same object if nothing changes.

        The method may read only the spec, the namespace, labels, annotations and owners. It must be idempotent.

        Raises:
            InvalidInput: The pod is invalid and is not scheduled.
        """
        ...


class BeforePreFilterPlugin(Plugin, Protocol):
    """A plugin that replaces the pod by a copy for one cycle."""

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """Return a copy that replaces the pod in this cycle, None to keep the pod, or reject the pod.

        Raises:
            InvalidInput: The copy has an invalid quantity.
        """
        ...


class AfterPreFilterPlugin(Plugin, Protocol):
    """A plugin that sees the answers of all PreFilter plugins."""

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Reject the pod, or return None to continue.

        Args:
            pod: The pod.
            found: The restrictions of the PreFilter plugins, each with the name of its plugin.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as one pod sees it in one cycle.

    Attributes:
        node: Replaces its labels, taints, images, allocatable and unschedulable flag. None: they stay.
        without: Uids of pods on the node that do not count.
        further_pods: Further pods that count on the node.
    """

    node: Node | None = None
    without: frozenset[str] = frozenset()
    further_pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What the filters of one cycle see. Nodes that are not mentioned see the unchanged pod.

    Attributes:
        pods: Rows, shape (K,), and the copy of the pod that they see. No row occurs twice.
        nodes: Row -> the node as the filters see it.
    """

    pods: Sequence[tuple[Rows, Pod]] = ()
    nodes: Mapping[int, NodeView] = field(default_factory=dict[int, NodeView])


class BeforeFilterPlugin(Plugin, Protocol):
    """A plugin that changes what the filters of one cycle see. Each plugin sees the changes of those before it."""

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """Return what filters and preemption see, None for no change, or reject the pod.

        Args:
            pod: The pod, or a copy that an earlier plugin made for some rows.
            nodes: All nodes.
            rows: The nodes that see `pod`, shape (K,).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What is scored in one cycle.

    Attributes:
        pod: A copy of the pod; None for the pod itself.
        rows: Feasible rows to score, shape (K,); None for all.
    """

    pod: Pod | None = None
    rows: Rows | None = None


class BeforeScorePlugin(Plugin, Protocol):
    """A plugin that changes what the scores of one cycle see."""

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """Return what scores see, None for no change, or reject the pod.

        Called if two or more nodes are feasible and none of them is preferred.

        Args:
            pod: The pod.
            nodes: All nodes.
            rows: The feasible rows, ascending, shape (K,).
        """
        ...


class ResizePodPlugin(Plugin, Protocol):
    """A plugin that changes the requests of a pod on its node, with feature gate ResizePod."""

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """Return the pod with other resources, None to keep its resources, or reject the pod.

        Raises:
            InvalidInput: The new resources have an invalid quantity.
        """
        ...
