"""Chooses the node of a preemption among several candidates.

Source: scheduler-core spec, 6 (5)
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_OFFSET: Final = 1 << 31
"""Makes every priority positive, so that each further victim adds to the cost."""


class VictimCost(NamedTuple):
    """The properties of a pod that determine the cost of its eviction.

    Attributes:
        priority: Its priority.
        started_at: Unix seconds of its start.
    """

    priority: int
    started_at: float


class Candidate(NamedTuple):
    """The victims of a preemption on one node, from which follows its cost.

    Attributes:
        victims: The pods to evict.
        pdb_violations: Number of victims whose PodDisruptionBudget is exhausted.
    """

    victims: Sequence[VictimCost]
    pdb_violations: int = 0


def pick_candidate(candidates: Mapping[str, Candidate]) -> str | None:
    """Return the name of the node on which preemption costs least, or None if there are no candidates.

    The criteria, each of which only decides ties of the criteria before it: fewest budget violations; least highest
    priority of a victim; least sum of (priority + 2^31); fewest victims; latest start of the earliest victim among
    those of highest priority; first candidate. A node without victims is taken at once.

    Source:
        vectors scheduler/preempt_pick
    """
    for node, candidate in candidates.items():
        if not candidate.victims:
            return node
    return min(candidates, key=lambda node: _cost(candidates[node]), default=None)


def _cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    victims = candidate.victims
    highest = max(victim.priority for victim in victims)
    earliest = min(victim.started_at for victim in victims if victim.priority == highest)
    return (
        candidate.pdb_violations,
        highest,
        sum(victim.priority + _OFFSET for victim in victims),
        len(victims),
        -earliest,
    )
