"""What the engine is asked and what it answers: restrictions of an attempt, switches, results with explanations.

Source: scheduler-core spec, 12.2
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from koordcore.events.pod import PlacementExplanation

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import Rows


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """Limits of one attempt: which nodes are candidates, and which of them are tried first.

    Attributes:
        rows: Positions of the candidate nodes, ascending; None for all nodes.
        preferred: Positions of nodes. The first of them that is feasible is taken without scoring.
        barred: Positions of nodes that have no room for the pod beside the pods nominated to them. They are refused.
        first: Positions of nodes that outrank all others. If one is feasible, no others are examined.
        plugin: Names of the plugins that restrict the nodes, for explanations.
        reason: Why these plugins restrict the nodes, for explanations; empty if they give no reason.
    """

    rows: Rows | None = None
    preferred: tuple[int, ...] = ()
    barred: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    plugin: str = ""
    reason: str = ""

    @property
    def looks_everywhere(self) -> bool:
        """Return whether all nodes are candidates and no node is preferred."""
        return self.rows is None and not self.preferred


UNRESTRICTED: Final = Restriction()


class ScoredAs(NamedTuple):
    """The feasible nodes that are scored, and the copy of the pod for which they are scored.

    Attributes:
        subject: The subject of the copy.
        rows: Positions of the nodes to score, ascending.
        left_out: Plugin -> number of feasible nodes that it excluded from scoring.
    """

    subject: Subject
    rows: Rows
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Switches of the engine's optimisations, for tests and measurements.

    Attributes:
        dynamic_index: Find few candidate nodes with indexes and evaluate only these.
        equivalence_classes: Cache results for pods of one equivalence class. If off, every cycle evaluates all nodes.
        least_family: Number of similar pod equivalence classes from which they share an evaluation of each node.
            Without `equivalence_classes`, no classes share one.
        random_relaxation: Stop a search when further nodes have no better score. This changes outcomes, see `sampled`.
    """

    dynamic_index: bool = True
    equivalence_classes: bool = True
    least_family: int = 8
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All optimisations that do not change an outcome."""
