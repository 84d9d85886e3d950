"""What ElasticQuota asks of preemption: who may be a victim, and whether the pod fits its quota without the victims.

Source:
    scheduler-core spec, 10.8 (preemption), 6
"""

from collections.abc import Mapping

from koordcore.protocol import keys

from koord_scheduler.domain.quota.specs.pods import PodFacts
from koord_scheduler.domain.quota.tree.admission import exceeding
from koord_scheduler.domain.quota.tree.node import QuotaNode, QuotaPod


def may_preempt(preemptor: PodFacts, quota: str, victim: QuotaPod, *, spare_default: bool) -> bool:
    """Return whether a pod of this quota may push the victim aside: of lower priority, of the same quota, preemptible.

    Args:
        spare_default: Argument disableDefaultQuotaPreemption: pods of the default quota are no victims.
    """
    return (
        victim.quota is not None
        and victim.quota.name == quota
        and victim.facts.priority < preemptor.priority
        and victim.facts.preemptible
        and not (spare_default and quota == keys.DEFAULT_QUOTA)
    )


class QuotaRoom:
    """What a quota would use while preemption tries victims: take them away, put them back, ask whether the pod fits.

    A copy: nothing of it shows in the quota.
    """

    def __init__(self, node: QuotaNode | None, requests: Mapping[str, int], limit: Mapping[str, int]) -> None:
        self._name = node.name if node is not None else ""
        self._used = dict(node.used) if node is not None else {}
        self._requests = requests
        self._limit = limit

    def take(self, victim: QuotaPod | None) -> None:
        """The victim would be gone; a pod of another quota, or not known, changes nothing."""
        self._move(victim, -1)

    def put_back(self, victim: QuotaPod | None) -> None:
        """The victim would stay after all."""
        self._move(victim, 1)

    def fits(self) -> bool:
        """Return whether used, without the victims taken, + the pod's request <= limit."""
        return not exceeding(self._used, self._requests, self._limit)

    def _move(self, victim: QuotaPod | None, sign: int) -> None:
        if victim is None or victim.quota is None or victim.quota.name != self._name or not victim.assigned:
            return
        for name, amount in victim.counted.items():
            self._used[name] = self._used.get(name, 0) + sign * amount
