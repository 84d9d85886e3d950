"""The quotas of a scheduler, as the ElasticQuota plugin asks about them in scheduling cycles. `QuotaBooks` records the
facts, `QuotaReports` describes quotas for users.

Source: scheduler-core spec, 10.5, 10.8, 10.9
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.events.explanations import QuotaShortage
from koordcore.protocol import keys
from koordcore.protocol.quota import BESIDE_THE_TREE, BUILT_IN

from koord_scheduler.domain.plugins.quota.accounting import masked
from koord_scheduler.domain.plugins.quota.admission import (
    NO_QUOTA,
    Admission,
    Check,
    QuotaAmounts,
    admit,
    exceeding,
)
from koord_scheduler.domain.plugins.quota.books import QuotaBooks
from koord_scheduler.domain.plugins.quota.node import QuotaNode
from koord_scheduler.domain.plugins.quota.overuse import QuotaRoom, RunningPod, pods_to_revoke
from koord_scheduler.domain.plugins.quota.specs import PodFacts

_NOTHING: Final[Mapping[str, int]] = {}
MOST_BORROWERS: Final = 3
"""Largest number of quotas that an explanation names as users of more than their min."""


class QuotaManager(QuotaBooks):
    """All quotas, with the decisions of the ElasticQuota plugin: admission, preemption, eviction for overuse."""

    def admit(self, facts: PodFacts) -> Admission:
        """Return whether the pod's quota has room for the pod. With enableCheckParentQuota, each ancestor must have
        room too. The pod must be recorded (its request counts in the runtimes) and not be reserved yet.
        """
        return self._admit(facts, self.args.enable_runtime_quota, self.args.enable_check_parent_quota)

    def more_nodes_help(self, facts: PodFacts) -> bool:
        """Return whether the pod's quota would have room for the pod in a cluster of any size. A runtime grows with the
        cluster, up to its own max and that of each ancestor; max and min do not.
        """
        return self._admit(facts, by_runtime=False, checks_parents=True).admitted

    def _admit(self, facts: PodFacts, by_runtime: bool, checks_parents: bool) -> Admission:
        name = self.quota_of(facts)
        if name is None:
            return NO_QUOTA
        node = self.forest.nodes[name]
        ancestors: Sequence[QuotaAmounts] = ()
        if checks_parents:
            ancestors = [self._amounts_of(ancestor, by_runtime) for ancestor in self.forest.above(node)]
        return admit(facts.requests, self._amounts_of(node, by_runtime), ancestors, preemptible=facts.preemptible)

    def shortage(self, facts: PodFacts, refused: Admission) -> QuotaShortage:
        """Return which limit the pod would exceed. `refused`: why `admit` has just refused it."""
        node, resource = self.forest.nodes[refused.quota], refused.exceeded[0]
        by_runtime = self.args.enable_runtime_quota
        needs = facts.requests.get(resource, 0)
        if refused.check is Check.NON_PREEMPTIBLE:
            used, limit = node.non_preemptible_used.get(resource, 0), node.spec.min.get(resource, 0)
            return QuotaShortage(quota=node.name, resource=resource, limit=limit, used=used, needs=needs, kind="min")
        limit = self.present_limit(node, by_runtime=by_runtime).get(resource, 0)
        is_max = limit >= node.spec.max.get(resource, limit)
        return QuotaShortage(
            quota=node.name,
            resource=resource,
            limit=limit,
            used=node.used.get(resource, 0),
            needs=needs,
            kind="max" if is_max else "runtime",
            above_min={} if is_max else _above_min(node, resource),
        )

    def room_for(self, facts: PodFacts) -> QuotaRoom:
        """Return a copy of the usage and limit of the pod's quota, from which preemption removes victims on trial. A
        pod without a quota always fits.
        """
        name = self.quota_of(facts)
        if name is None:
            return QuotaRoom(None, _NOTHING, _NOTHING, self.pods)
        node = self.forest.nodes[name]
        limit = self.present_limit(node, by_runtime=self.args.enable_runtime_quota)
        return QuotaRoom(node, masked(facts.requests, node), limit, self.pods)

    def spares_everyone(self, preemptor: PodFacts) -> bool:
        name = self.quota_of(preemptor)
        return name is None or (self.args.disable_default_quota_preemption and name == keys.DEFAULT_QUOTA)

    def may_preempt(self, preemptor: PodFacts, victim: str) -> bool:
        """Return whether preemption within the quota may evict the victim for the preemptor. The victim must belong to
        the preemptor's quota, have a lower priority and be preemptible. `preemptor`: the pod that finds no room.
        `victim`: uid of the other pod. The result is False if this pod is unknown.
        """
        name, pod = self.quota_of(preemptor), self.pods.get(victim)
        if name is None or pod is None or pod.quota is None or self.spares_everyone(preemptor):
            return False
        return pod.quota.name == name and pod.facts.priority < preemptor.priority and pod.facts.preemptible

    @property
    def revokes_overuse(self) -> bool:
        """Return whether pods are evicted from quotas that use more than their runtime for too long."""
        return self.args.monitor_all_quotas and self.args.enable_runtime_quota

    def overused(self) -> list[str]:
        """Return the sorted names of quotas that use more than their runtime of any resource. The built-in quotas
        (root, system, default) are never overused.
        """
        over: list[str] = []
        for name in sorted(self.forest.nodes):
            if name not in BUILT_IN:
                node = self.forest.nodes[name]
                if exceeding(node.used, _NOTHING, self.present_limit(node, by_runtime=True)):
                    over.append(name)
        return over

    def pods_to_revoke(self, name: str) -> list[str]:
        """Return the uids of the quota's own pods to evict, in order, so that the quota uses at most its runtime.
        Raises KeyError: the quota does not exist.
        """
        node = self.forest.nodes[name]
        running = [
            RunningPod(
                pod.facts.uid,
                pod.facts.priority,
                float("inf") if pod.facts.start_time is None else pod.facts.start_time,
                pod.facts.preemptible,
                pod.counted,
            )
            for _, pod in sorted(node.pods.items())
            if pod.assigned and not pod.ignored
        ]
        return pods_to_revoke(self.present_limit(node, by_runtime=True), node.used, running)

    def revoke(self, now: float) -> dict[str, list[str]]:
        """Return quota -> uids to evict, for quotas that used more than their runtime for longer than delayEvictTime.
        Call it once every revokePodInterval. Empty unless `revokes_overuse`. `now`: Unix seconds of the service's
        `Clock`.
        """
        if not self.revokes_overuse:
            return {}
        found = {name: self.pods_to_revoke(name) for name in self.clock.observe(now, self.overused())}
        return {name: uids for name, uids in found.items() if uids}

    def _amounts_of(self, node: QuotaNode, by_runtime: bool) -> QuotaAmounts:
        limit = self.present_limit(node, by_runtime=by_runtime)
        spec = node.spec
        return QuotaAmounts(node.name, limit, node.used, spec.min, spec.max, node.non_preemptible_used)


def _above_min(node: QuotaNode, resource: str) -> dict[str, int]:
    """Return the siblings of a quota that use most of a resource above their min: at most `MOST_BORROWERS`."""
    siblings = node.parent.children.values() if node.parent is not None else ()
    unused = (
        (each.spec.min.get(resource, 0) - each.used.get(resource, 0), each.name)
        for each in siblings
        if each is not node and each.name not in BESIDE_THE_TREE
    )
    largest = heapq.nsmallest(MOST_BORROWERS, (found for found in unused if found[0] < 0))
    return {name: -amount for amount, name in largest}
