"""The results of the engine, each with its explanation."""

import msgspec
from koordcore.events.pod import PlacementExplanation


class Placed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The engine found a node for the pod.

    Attributes:
        node: Name of the node.
        row: Position of the node in the node columns.
        explanation: Why this node: its scores, and how many nodes were refused for which reasons.
    """

    node: str
    row: int
    explanation: PlacementExplanation


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The engine found no feasible node for the pod.

    Attributes:
        message: One sentence for the user.
        explanation: Which plugin refused how many nodes.
    """

    message: str
    explanation: PlacementExplanation


Decision = Placed | Unschedulable


def fit_error(explanation: PlacementExplanation) -> str:
    """Return one sentence that tells why no node is feasible.

    Example: `0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient cpu.` Each distinct reason has one
    entry with its number of nodes. The entries are sorted as texts. If no node was considered, the sentence says that
    the cluster has no nodes.

    Source:
        scheduler-core spec, 1.4
    """
    if explanation.nodes_considered == 0:
        return "0/0 nodes are available: the cluster has no nodes."
    counts: dict[str, int] = {}
    for exclusion in explanation.exclusions:
        for reason, count in exclusion.reasons.items():
            counts[reason] = counts.get(reason, 0) + count
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{explanation.nodes_considered} nodes are available: {', '.join(entries)}."
