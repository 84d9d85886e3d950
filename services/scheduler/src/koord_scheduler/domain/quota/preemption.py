"""Room in a quota, as preemption tries it with and without victims.

Source:
    scheduler-core spec, 10.8 (preemption), 6
"""

from collections.abc import Mapping

from koord_scheduler.domain.quota.tree.admission import exceeding
from koord_scheduler.domain.quota.tree.node import QuotaNode, QuotaPod


class QuotaRoom:
    """A copy of the usage of a quota, to try whether a pod fits without some victims.

    The quota itself does not change.

    Args:
        node: The quota of the preemptor; None: it has none and always fits.
        requests: Resource -> amount that the preemptor requests, for resources that the quota limits.
        limit: Resource -> most that the pods of the quota may use; others are unlimited.
    """

    def __init__(self, node: QuotaNode | None, requests: Mapping[str, int], limit: Mapping[str, int]) -> None:
        self._name = node.name if node is not None else ""
        self._used = dict(node.used) if node is not None else {}
        self._requests = requests
        self._limit = limit

    def take(self, victim: QuotaPod | None) -> None:
        """Subtract a possible victim from the usage. No-op if it is None, has no node, or belongs to another quota."""
        self._move(victim, -1)

    def put_back(self, victim: QuotaPod | None) -> None:
        """Add a pod that `take` subtracted to the usage again."""
        self._move(victim, 1)

    def fits(self) -> bool:
        """Return whether the remaining usage plus the preemptor's request is at most the quota's limit."""
        return not exceeding(self._used, self._requests, self._limit)

    def _move(self, victim: QuotaPod | None, sign: int) -> None:
        if victim is None or victim.quota is None or victim.quota.name != self._name or not victim.assigned:
            return
        for name, amount in victim.counted.items():
            self._used[name] = self._used.get(name, 0) + sign * amount
