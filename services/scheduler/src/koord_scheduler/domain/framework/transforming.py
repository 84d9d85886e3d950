"""Plugins that change what a pod, or a node, is to the others: for good as it comes in, or for one cycle.

    PodTransformer           as the pod comes in, before anybody looks at it
    BeforePreFilterPlugin    the pod of one cycle
    AfterPreFilterPlugin     hears what all PreFilters have said
    BeforeFilterPlugin       the pod and the nodes, as they judge each other in one cycle
    BeforeScorePlugin        the pod and the feasible nodes, as they are scored in one cycle
    ResizePodPlugin          what the pod asks for, once its node is known: for good

A cycle ends when a node is chosen. What counts on the node, in quotas and in the log is the pod as it came in, or as it
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
    """A transformer of the point preFilter, in the order of the point."""

    def transform(self, pod: Pod) -> Pod:
        """The pod as every plugin of the profile is to see it, the same object when nothing changes.

        It may read the spec, the namespace, labels, annotations and owners, so that pods that agree in these stay
        alike; to transform twice is as to transform once.

        Raises:
            InvalidInput: The pod cannot be read, and is not placed.
        """
        ...


class BeforePreFilterPlugin(Plugin, Protocol):
    """A transformer of the point preFilter, in the order of the point."""

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """A copy that stands for the pod in the rest of this cycle; None: the pod as it is. A refusal ends the cycle.

        Raises:
            InvalidInput: The copy asks for what is no quantity.
        """
        ...


class AfterPreFilterPlugin(Plugin, Protocol):
    """Runs after all PreFilters, in the order of the point preFilter."""

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Refuse the pod, or None: go on. found: the restrictions, with the plugins that made them."""
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
    """How nodes and the pod see each other in one cycle; whoever is not named sees things as they are.

    Attributes:
        pods: Rows, shape (K,), and the pod that they judge; no row twice.
        nodes: Row -> the node as it is judged.
    """

    pods: Sequence[tuple[Rows, Pod]] = ()
    nodes: Mapping[int, NodeView] = field(default_factory=dict[int, NodeView])


class BeforeFilterPlugin(Plugin, Protocol):
    """A transformer of the point filter, in the order of the point; each sees what those before it have made."""

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """What filters, and preemption, are to see; None: things as they are. A refusal ends the cycle.

        Args:
            rows: The nodes that judge this pod, shape (K,); where those before have made several of it, it is asked for
                each.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What is scored in one cycle. pod: None, as it is; rows: of the feasible ones, shape (K,), None all."""

    pod: Pod | None = None
    rows: Rows | None = None


class BeforeScorePlugin(Plugin, Protocol):
    """A transformer of the point score, in the order of the point."""

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """What scores are to see; None: things as they are. A refusal ends the cycle.

        Asked where two or more nodes are feasible and none of them is preferred; rows: these, shape (K,), ascending
        """
        ...


class ResizePodPlugin(Plugin, Protocol):
    """Changes what pods ask for on the node that was chosen, with feature gate ResizePod; in the order of reserve."""

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """The pod with other resources; None: with its own. A refusal fails the attempt.

        Raises:
            InvalidInput: What it asks for then is no quantity.
        """
        ...
