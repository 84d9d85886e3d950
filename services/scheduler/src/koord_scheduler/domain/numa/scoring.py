"""Scores of a node, or of some of its zones, by their use once a pod is there.

Source: scheduler-fine-grained spec, 1.10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.columns.resource_names import is_scalar

MAX_SCORE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A scoring strategy for nodes or zones: which resources count, and whether more use is better.

    Attributes:
        most_allocated: True if a higher use gives a higher score.
        weights: Resource -> weight, in order.
    """

    most_allocated: bool = False
    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))

    def score(self, used: Mapping[str, int], capacity: Mapping[str, int], requests: Mapping[str, int]) -> int:
        """Return a score within 0..100: the weighted mean over resources; 0 if no resource counts.

        Args:
            used: Used amounts, with the pod.
            capacity: Allocatable amounts; a resource of 0 does not count.
            requests: Resource -> amount that the pod requests. Resources other than cpu and memory count only if it
                requests them.
        """
        total = weights = 0
        for name, weight in self.weights:
            limit = capacity.get(name, 0)
            if limit <= 0 or (is_scalar(name) and not requests.get(name, 0)):
                continue
            total += weight * self.part(used.get(name, 0), limit)
            weights += weight
        return total // weights if weights else 0

    def part(self, used: int, limit: int) -> int:
        """Return the score of one resource, 0..100.

        Args:
            used: Used amount, with the pod.
            limit: Allocatable amount, above 0.
        """
        taken = min(used, limit)
        return (taken if self.most_allocated else limit - taken) * MAX_SCORE // limit
