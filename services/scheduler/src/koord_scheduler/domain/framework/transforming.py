"""Plugins that change what other plugins see of a pod or a node: permanently when it comes in, or for one cycle.

    PodTransformer           the pod when it comes in, before any plugin reads it
    BeforePreFilterPlugin    the pod, for one cycle
    AfterPreFilterPlugin     nothing; it sees the answers of all PreFilter plugins
    BeforeFilterPlugin       the pod and the nodes, for the filters of one cycle
    BeforeScorePlugin        the pod and the feasible nodes, for the scores of one cycle
    ResizePodPlugin          the requests of the pod once its node is known, permanently

The change of a cycle ends when a node is chosen. The node, quotas and the log count the pod as it came in, or as it was
resized.

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
    """Changes pods when they come in."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod as every plugin of the profile sees it; the same object if nothing changes.

        It may read the spec, the namespace, labels, annotations and owners only. It must be idempotent.

        Raises:
            InvalidInput: The pod is invalid, and is not placed.
        """
        ...


class BeforePreFilterPlugin(Plugin, Protocol):
    """Replaces the pod by a copy for one cycle."""

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """Return a copy that stands for the pod in this cycle, None for the pod itself, or reject the pod.

        Raises:
            InvalidInput: The copy has an invalid quantity.
        """
        ...


class AfterPreFilterPlugin(Plugin, Protocol):
    """Sees the answers of all PreFilter plugins."""

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Reject the pod, or return None to go on. `found` has the restrictions with their plugins."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as one pod sees it in one cycle.

    Attributes:
        node: Its labels, taints, images, what it can allocate and whether it takes pods; None: as they are.
        without: Uids of pods that do not count on it.
        beside: Pods that count on it, too.
    """

    node: Node | None = None
    without: frozenset[str] = frozenset()
    beside: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What the filters of one cycle see; nodes that are not named see the pod as it is.

    Attributes:
        pods: Rows, shape (K,), and the copy of the pod that they see; no row twice.
        nodes: Row -> the node as it is judged.
    """

    pods: Sequence[tuple[Rows, Pod]] = ()
    nodes: Mapping[int, NodeView] = field(default_factory=dict[int, NodeView])


class BeforeFilterPlugin(Plugin, Protocol):
    """Changes what the filters of one cycle see; each plugin sees the changes of those before it."""

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
    """Changes what the scores of one cycle see."""

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """Return what scores see, None for no change, or reject the pod.

        Asked if two or more nodes are feasible and none of them is preferred.

        Args:
            pod: The pod.
            nodes: All nodes.
            rows: The feasible rows, ascending, shape (K,).
        """
        ...


class ResizePodPlugin(Plugin, Protocol):
    """Changes the requests of a pod on its node, with feature gate ResizePod."""

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """Return the pod with other resources, None for its own, or reject the pod.

        Raises:
            InvalidInput: The new resources have an invalid quantity.
        """
        ...
