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
    node: str
    row: int
    explanation: PlacementExplanation  # Why this node: its scores, and how many nodes were refused for which reasons


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    message: str  # One sentence for the user
    explanation: PlacementExplanation  # Which plugin refused how many nodes


Decision = Placed | Unschedulable


def fit_error(explanation: PlacementExplanation) -> str:
    """Why no node is feasible, such as `0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient cpu.`
    Each distinct reason has one entry with its number of nodes; the entries are sorted as texts. If no node was
    considered, it says that the cluster has no nodes. Source: scheduler-core spec, 1.4.
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
    """Limits of one attempt: which nodes are candidates, and which of them are tried first."""

    rows: Rows | None = None  # Positions of the candidate nodes, ascending; None for all nodes
    preferred: tuple[int, ...] = ()  # Positions of nodes. The first of them that is feasible is taken without scoring.
    # Positions of nodes that have no room for the pod beside the pods nominated to them. They are refused.
    barred: tuple[int, ...] = ()
    # Positions of nodes that outrank all others. If one is feasible, no others are examined.
    first: tuple[int, ...] = ()
    plugin: str = ""  # Names of the plugins that restrict the nodes, for explanations
    reason: str = ""  # Why these plugins restrict the nodes, for explanations; empty if they give no reason

    @property
    def looks_everywhere(self) -> bool:
        """Return whether all nodes are candidates and no node is preferred."""
        return self.rows is None and not self.preferred


UNRESTRICTED: Final = Restriction()


class ScoredAs(NamedTuple):
    """The feasible nodes that are scored, and the copy of the pod for which they are scored."""

    subject: Subject  # The subject of the copy
    rows: Rows  # Positions of the nodes to score, ascending
    left_out: Mapping[str, int]  # Plugin -> number of feasible nodes that it excluded from scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Switches of the engine's optimisations, for tests and measurements."""

    dynamic_index: bool = True  # Find few candidate nodes with indexes and evaluate only these
    # Cache results for pods of one equivalence class. If off, every cycle evaluates all nodes.
    equivalence_classes: bool = True
    # Number of similar pod equivalence classes from which they share an evaluation of each node. Without
    # `equivalence_classes`, no classes share one.
    least_family: int = 8
    # Stop a search when further nodes have no better score. This changes outcomes, see `sampled`.
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All optimisations that do not change an outcome."""
