"""Hints: the sets of zones that can satisfy a pod's requests for CPU, memory and other resources of zones. They have
scores: those of the node or of some of its zones by their use once the pod is there.

Source: scheduler-fine-grained spec, 1.6, 1.10; vectors scheduler/numa_admit
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from koordcore.protocol.amplification import amplify
from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.columns.resource_names import is_scalar
from koord_scheduler.domain.framework.topology_hints import Hint, TopologyPolicy, Zones, ids_of, zones_of
from koord_scheduler.domain.plugins.numa.binding import Binding
from koord_scheduler.domain.plugins.numa.zones import NodeZones, shortage

MAX_SCORE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A scoring strategy for nodes or zones: which resources count, and whether more use is better."""

    most_allocated: bool = False  # True if a higher use gives a higher score
    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))  # Resource -> weight, in order

    def score(self, used: Mapping[str, int], capacity: Mapping[str, int], requests: Mapping[str, int]) -> int:
        """Return a score within 0..100: the weighted mean over resources; 0 if no resource counts. `used`: used
        amounts, with the pod. `capacity`: allocatable amounts; a resource of 0 does not count. `requests`: resource ->
        amount that the pod requests. Resources other than cpu and memory count only if it requests them.
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
        """Return the score of one resource, 0..100. `used`: used amount, with the pod. `limit`: allocatable amount,
        above 0.
        """
        taken = min(used, limit)
        return (taken if self.most_allocated else limit - taken) * MAX_SCORE // limit


_NO_AMOUNTS: Final[Mapping[str, int]] = {}


def zone_hints(
    node: NodeZones,
    requests: Mapping[str, int],
    binding: Binding | None,
    policy: TopologyPolicy,
    strategy: Strategy,
    *,
    most_zones: int | None = None,
) -> dict[str, list[Hint]]:
    """Return resource -> hints (sets of zones that satisfy the pod), for requested resources that zones report. The
    smallest sets of each resource are preferred.

    Args:
        node: The node; it has zones.
        requests: Resource -> amount that the pod requests, not amplified.
        binding: How the pod binds CPUs; None if it binds none.
        policy: Topology policy. Under Restricted every set of zones that satisfies the pod is preferred.
        most_zones: Size of the largest sets to try; None: all sizes.
    """
    hints: dict[str, list[Hint]] = {
        resource: [] for resource, amount in requests.items() if amount > 0 and node.reports(resource)
    }
    smallest: dict[str, int] = {}
    ids = sorted(node.allocatable)
    for size in range(1, min(len(ids), most_zones or len(ids)) + 1):
        for chosen in combinations(ids, size):
            zones = zones_of(chosen)
            if shortage(node, requests, binding, zones) is not None:
                continue
            score = zone_score(node, requests, binding, zones, strategy)
            for resource, found in hints.items():
                if all(node.available_to(zone, resource, binding) > 0 for zone in chosen):
                    is_smallest = smallest.setdefault(resource, size) == size
                    found.append(Hint(zones, is_smallest or policy is TopologyPolicy.RESTRICTED, score))
    return hints


def zone_score(
    node: NodeZones, requests: Mapping[str, int], binding: Binding | None, zones: Zones, strategy: Strategy
) -> int:
    """Return a score 0..100 for the set of zones, by their use after the pod is added. `requests`: resource -> amount
    that the pod requests, not amplified. `binding`: how the pod binds CPUs; None if it binds none. `zones`: the zones,
    one bit per zone.
    """
    total = weights = 0
    ids = ids_of(zones)
    for name, weight in strategy.weights:
        request = requests.get(name, 0)
        if not request and is_scalar(name):
            continue
        limit = left = 0
        for zone in ids:
            limit += node.allocatable.get(zone, _NO_AMOUNTS).get(name, 0)
            left += node.available_to(zone, name, binding)
        if limit > 0:
            weighed = amplified_request(name, request, binding, node.ratio)
            total += weight * strategy.part(limit - left + weighed, limit)
            weights += weight
    return total // weights if weights else 0


def amplified_request(resource: str, amount: int, binding: Binding | None, ratio: float) -> int:
    """Return the amount with which a request counts on a node that has an amplification ratio. A request for CPU that
    the pod binds is multiplied by the ratio, because bound CPUs are physical. Other requests count as they are.
    """
    return amplify(amount, ratio) if resource == CPU and binding is not None else amount
