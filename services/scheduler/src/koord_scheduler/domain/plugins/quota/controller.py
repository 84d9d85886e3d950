"""The controller of ElasticQuota: publishes statuses of quotas, and evicts pods because of overuse.

Source: scheduler-core spec, 10.8 and 10.9.
"""

from collections.abc import Sequence
from typing import Final

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.protocol.quota import BUILT_IN

from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, Status
from koord_scheduler.domain.plugins.quota.admission import quantity_text
from koord_scheduler.domain.plugins.quota.books import QuotaChanges
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.reports import QuotaReports

REVOKED: Final = "QuotaOveruse"


class QuotaController:
    """The controller of ElasticQuota: publishes quota statuses, and evicts pods of quotas above their runtime. It also
    stops counting pods whose termination grace period is over.
    """

    def __init__(self, quotas: QuotaManager, changes: QuotaChanges) -> None:
        self._quotas = quotas
        self._changes = changes
        self._reports = QuotaReports(quotas)
        self._next_revoke = 0.0

    def due(self) -> float | None:
        """Return 0 if a quota has changed, else when overuse is checked or a deleted pod counts no longer. None if
        nothing is due.
        """
        dues = [0.0] if self._changes else []
        if self._quotas.revokes_overuse:
            dues.append(self._next_revoke)
        expiry = self._quotas.next_expiry()
        return min([*dues, *([] if expiry is None else [expiry])], default=None)

    def control(self, now: float) -> Sequence[Eviction | Status]:
        """Return the pods to evict from overused quotas, once per interval, and the statuses that changed. Deleted pods
        whose grace period is over count no longer.
        """
        expiry = self._quotas.next_expiry()
        if expiry is not None and expiry <= now and self._quotas.expire(now):
            self._quotas.moves += 1
        wanted: list[Eviction | Status] = []
        if now >= self._next_revoke and self._quotas.revokes_overuse:
            self._next_revoke = now + self._quotas.args.revoke_pod_interval
            wanted += self._revocations(now)
        return wanted + self._statuses()

    def _statuses(self) -> list[Eviction | Status]:
        statuses: list[Eviction | Status] = []
        for name in self._changes.take() if self._changes else ():
            status = self._reports.status_of(name)
            if name in BUILT_IN and name not in self._quotas.written:
                continue
            statuses.append(Status(AggregateRef("quota", name_token(name)), status))
        return statuses

    def _revocations(self, now: float) -> list[Eviction | Status]:
        evictions: list[Eviction | Status] = []
        for name, uids in self._quotas.revoke(now).items():
            used, runtime = self._quotas.forest.nodes[name].used, self._quotas.runtime_of(name)
            over = ", ".join(
                f"{resource} {quantity_text(resource, used.get(resource, 0))} of {quantity_text(resource, limit)}"
                for resource, limit in sorted(runtime.items())
                if used.get(resource, 0) > limit
            )
            message = f"quota {name} uses more than its runtime: {over}"
            evictions += [Eviction(uid, message, REVOKED) for uid in uids]
        return evictions
