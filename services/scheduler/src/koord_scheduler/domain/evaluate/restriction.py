"""Restrictions of an attempt: its candidate nodes, and the feasible nodes that are scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.pods.equivalence_classes import Subject


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
