"""ElasticQuota as a plugin: what it answers at each extension point. The rules are beside it.

Source: scheduler-core spec, 10
"""

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import QUOTA_EXCEEDED
from koordcore.protocol.quota import BUILT_IN
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.extension_points import (
    CONTROLLER,
    PAGES,
    POST_FILTER,
    PRE_FILTER,
    QUEUEING_HINTS,
    RESERVE,
)
from koord_scheduler.domain.framework.fact_points import ClusterEvent, EventKind
from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, PageAnswer, Status
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch, Room
from koord_scheduler.domain.plugins.quota.book import QuotaBook
from koord_scheduler.domain.plugins.quota.controller import QuotaController
from koord_scheduler.domain.plugins.quota.node import QuotaPod
from koord_scheduler.domain.plugins.quota.reports import quota_pages

_UNLIMITED: Final = frozenset({keys.DEFAULT_QUOTA, keys.SYSTEM_QUOTA})


class ElasticQuota:
    """The plugin ElasticQuota: admits pods within the limits of their quotas, and preempts within a quota."""

    name = "ElasticQuota"
    extension_points = (PRE_FILTER, POST_FILTER, RESERVE, QUEUEING_HINTS, CONTROLLER, PAGES)
    wakes_on = frozenset({EventKind.OWN})

    def __init__(self, book: QuotaBook) -> None:
        self.quotas = book.quotas
        self._controller = QuotaController(book.quotas, book.changes)
        self._charged: dict[str, Allocation] = {}

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """Reject the pod if its quota, or a parent, has too little left. Preemption within the quota may help it. None
        for pods without a quota or with an unlimited one.
        """
        known = self.quotas.pods.get(pod.uid)
        if known is None:
            return None
        if self._is_unlimited(known):
            return None
        admission = self.quotas.admit(known.facts)
        if admission.admitted:
            return None
        return Rejection(
            plugin=self.name,
            message=admission.message,
            resolvable=True,
            key=admission.quota,
            condition="" if self.quotas.more_nodes_help(known.facts) else QUOTA_EXCEEDED,
            quota=self.quotas.shortage(known.facts, admission),
        )

    def _is_unlimited(self, pod: QuotaPod) -> bool:
        """Return whether a preemptible pod of the default or system quota has no limit, as with runtime quotas."""
        quota = pod.quota
        if quota is None or quota.name not in _UNLIMITED or not pod.facts.preemptible:
            return False
        return self.quotas.args.enable_runtime_quota

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Charge the pod to its quota. The allocation names the quota, unless it is built in."""
        known = self.quotas.pods.get(pod.uid)
        if known is None:
            return NOTHING
        self.quotas.reserve(pod.uid)
        quota = known.quota
        if quota is None or quota.name in BUILT_IN:
            return NOTHING
        charged = self._charged.get(quota.name)
        if charged is None:
            if len(self._charged) > 2 * len(self.quotas.forest.nodes):
                self._charged.clear()  # most are of quotas that are gone
            charged = self._charged[quota.name] = Allocation(quota=quota.name)
        return charged

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Subtract the pod from the usage of its quota. No other pod loses its node."""
        self.quotas.unreserve(pod.uid)
        return ()

    def hint_version(self) -> int:
        return self.quotas.moves

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        known = self.quotas.pods.get(pod.uid)
        return known is None or self.quotas.admit(known.facts).admitted

    def control_due(self) -> float | None:
        """Return Unix seconds of the next run: to publish a status, check overuse, or stop counting a deleted pod."""
        return self._controller.due()

    def control(self, now: float) -> Sequence[Eviction | Status]:
        return self._controller.control(now)

    def pages(self) -> Mapping[str, PageAnswer]:
        return quota_pages(self.quotas)

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Search for victims of the same quota. This can help if the quota rejected the pod, or if no node was
        feasible.
        """
        return search.on_one_node(self) if rejection is None or rejection.plugin == self.name else None

    def spares_everyone(self, pod: PodRecord) -> bool:
        known = self.quotas.pods.get(pod.uid)
        return known is None or self.quotas.spares_everyone(known.facts)

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        known = self.quotas.pods.get(pod.uid)
        return known is not None and self.quotas.may_preempt(known.facts, victim.uid)

    def room_for(self, pod: PodRecord) -> Room | None:
        known = self.quotas.pods.get(pod.uid)
        return None if known is None else self.quotas.room_for(known.facts)

    def most_candidates(self, nodes: int) -> int:
        return nodes
