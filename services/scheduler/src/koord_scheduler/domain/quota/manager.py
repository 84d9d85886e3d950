"""All quotas of a scheduler: the one door to ElasticQuota. What it is asked while pods are scheduled.

Facts come in as `QuotaBooks` says; `reports` tells people about them.

Source:
    scheduler-core spec, 10.5, 10.8, 10.9
"""

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.quota import BUILT_IN, QuotaSpec

from koord_scheduler.domain.quota.hints import pod_deletion_helps, quota_change_helps
from koord_scheduler.domain.quota.preemption import QuotaRoom, may_preempt
from koord_scheduler.domain.quota.specs.pods import PodFacts
from koord_scheduler.domain.quota.tree.accounting import masked
from koord_scheduler.domain.quota.tree.admission import NO_QUOTA, Admission, QuotaAmounts, admit, exceeding
from koord_scheduler.domain.quota.tree.books import QuotaBooks
from koord_scheduler.domain.quota.tree.node import QuotaNode
from koord_scheduler.domain.quota.tree.overuse import RunningPod, pods_to_revoke

_NOTHING: Final[Mapping[str, int]] = {}


class QuotaManager(QuotaBooks):
    """The quotas as the scheduler uses them."""

    def admit(self, facts: PodFacts) -> Admission:
        """Return whether the pod may be placed as far as its quota goes.

        The pod has been seen (its request takes part in the runtimes) and is not reserved.

        Source:
            scheduler-core spec, 10.5
        """
        name = self.quota_of(facts)
        if name is None:
            return NO_QUOTA
        node = self.forest.nodes[name]
        ancestors: Sequence[QuotaAmounts] = ()
        if self.settings.enable_check_parent_quota:
            ancestors = [self._amounts_of(ancestor) for ancestor in self.forest.above(node)]
        return admit(facts.requests, self._amounts_of(node), ancestors, preemptible=facts.preemptible)

    def room_for(self, facts: PodFacts) -> QuotaRoom:
        """Used and limit of the pod's quota, to try victims on; a pod without quota always fits.

        Source:
            scheduler-core spec, 10.8
        """
        name = self.quota_of(facts)
        if name is None:
            return QuotaRoom(None, _NOTHING, _NOTHING)
        node = self.forest.nodes[name]
        limit = self.present_limit(node, by_runtime=self.settings.enable_runtime_quota)
        return QuotaRoom(node, masked(facts.requests, node), limit)

    def spares_everyone(self, preemptor: PodFacts) -> bool:
        """Return whether in-quota preemption may take nobody for the pod.

        Source: scheduler-core spec, 10.8
        """
        name = self.quota_of(preemptor)
        return name is None or (self.settings.disable_default_quota_preemption and name == keys.DEFAULT_QUOTA)

    def may_preempt(self, preemptor: PodFacts, victim: str) -> bool:
        """Return whether in-quota preemption may take the victim (a uid); a pod that was never seen is none.

        Source:
            scheduler-core spec, 10.8
        """
        name, pod = self.quota_of(preemptor), self.pods.get(victim)
        if name is None or pod is None:
            return False
        return may_preempt(preemptor, name, pod, spare_default=self.settings.disable_default_quota_preemption)

    def quota_change_helps(self, facts: PodFacts, before: QuotaSpec | None, after: QuotaSpec) -> bool:
        """Return whether the update of a quota is a reason to try the pod again (enableQueueHint).

        Source:
            scheduler-core spec, 10.9
        """
        chain = self._chain(facts)
        same_tree = bool(chain) and self.forest.nodes[chain[0]].tree == self.forest.tree_of(after)
        return quota_change_helps(before, after, chain, same_tree=same_tree)

    def pod_deletion_helps(self, facts: PodFacts, deleted: PodFacts, *, was_assigned: bool) -> bool:
        """Return whether the deletion of another pod is a reason to try the pod again (enableQueueHint).

        Source:
            scheduler-core spec, 10.9
        """
        name = self.quota_of(deleted)
        node = self.forest.nodes[name] if name is not None else None
        counted_in = [node.name, *(above.name for above in self.forest.above(node))] if node is not None else []
        return pod_deletion_helps(self._chain(facts), counted_in, was_assigned=was_assigned)

    def overused(self) -> list[str]:
        """Quotas, sorted, that use more than their runtime in any resource; system and root are never."""
        over: list[str] = []
        for name in sorted(self.forest.nodes):
            if name not in BUILT_IN:
                node = self.forest.nodes[name]
                if exceeding(node.used, _NOTHING, self.present_limit(node, by_runtime=True)):
                    over.append(name)
        return over

    def pods_to_revoke(self, name: str) -> list[str]:
        """Uids of the quota's own pods to evict, in order, so that they fit its runtime; KeyError as `runtime_of`.

        Source:
            scheduler-core spec, 10.8
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
        """Return what to evict now, by quota.

        Those over their runtime for longer than delayEvictTime; call every interval.

        Args:
            now: Seconds since the epoch.
        """
        if not self.settings.revokes_overuse:
            return {}
        found = {name: self.pods_to_revoke(name) for name in self.clock.observe(now, self.overused())}
        return {name: uids for name, uids in found.items() if uids}

    def _amounts_of(self, node: QuotaNode) -> QuotaAmounts:
        limit = self.present_limit(node, by_runtime=self.settings.enable_runtime_quota)
        spec = node.spec
        return QuotaAmounts(node.name, limit, node.used, spec.min, spec.max, node.non_preemptible_used)

    def _chain(self, facts: PodFacts) -> list[str]:
        name = self.quota_of(facts)
        if name is None:
            return []
        above = self.forest.above(self.forest.nodes[name]) if self.settings.enable_check_parent_quota else []
        return [name, *(ancestor.name for ancestor in above)]
