"""Pick the node for a preemption among several candidates.

Source: scheduler-core spec, 6 (5)
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_OFFSET: Final = 1 << 31
"""Makes every priority positive, so that each further victim costs."""


class VictimCost(NamedTuple):
    """A pod that would be evicted. started_at: unix seconds."""

    priority: int
    started_at: float


class Candidate(NamedTuple):
    """The cost of a preemption on one node. pdb_violations: victims whose disruption budget is exhausted."""

    victims: Sequence[VictimCost]
    pdb_violations: int = 0


def pick_candidate(candidates: Mapping[str, Candidate]) -> str | None:
    """Return the node to take, None without candidates; each criterion decides only ties of those before.

        fewest budget violations; lowest highest priority of a victim; least sum of (priority + 2^31); fewest victims;
        latest start, of each node the earliest among its victims of highest priority; the first

    A node without victims costs nothing and is taken at once.

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
