"""Withdraw the evictions of migration jobs that do not want them any more.

An eviction belongs to its PodMigrationJob. A job that is deleted, paused or aborted, or that ended without success,
evicts no pod. So the fact that changes the job has the facts that withdraw its evictions in the same atomic batch.
`decide_eviction` and the gateway check the job again before they evict.

Source:
    reality.md, 5.1; descheduler spec, 7.5 (1), 7.11, 11.2
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Draft, name_from_token
from koordcore.events.gateway import PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.state.aggregates import EvictionState
from koordcore.state.migrations import MigrationState

from koord_manager.domain.cluster.view import MIGRATION_JOBS, ManagerView

_ABORTED: Final = "Aborted"
_SUCCEEDED: Final = "Succeeded"


def withdrawal_by_job(request: PodEvictionRequested, job: Mapping[str, Any] | None) -> PodEvictionWithdrawn | None:
    """Return the fact that withdraws an eviction; None if its job wants it, or if no job requested it.

    `job`: the PodMigrationJob of that name as it is now; None if there is none.
    """
    if not request.job:
        return None
    metadata: Mapping[str, Any] = {} if job is None else job.get("metadata") or {}
    if job is None or (request.job_uid and metadata.get("uid") != request.job_uid) or metadata.get("deletionTimestamp"):
        return _withdrawn("JobDeleted", f"PodMigrationJob {request.job} was deleted")
    status: Mapping[str, Any] = job.get("status") or {}
    spec: Mapping[str, Any] = job.get("spec") or {}
    if status.get("phase") == _ABORTED:
        return _withdrawn("JobAborted", f"PodMigrationJob {request.job} was aborted")
    if spec.get("paused") is True:
        return _withdrawn("JobPaused", f"PodMigrationJob {request.job} is paused")
    return None


def withdrawal(view: ManagerView, request: PodEvictionRequested) -> PodEvictionWithdrawn | None:
    """Return the fact that withdraws a pending eviction because of its job as it is folded; None if it stands."""
    if not request.job:
        return None
    state = view.custom(MIGRATION_JOBS, "", request.job)
    found = withdrawal_by_job(request, None if state is None else state.object)
    if found is None:
        job = view.state.of_kind(MigrationState).get(request.job_uid)
        if job is not None and job.ended_at and job.progress.phase != _SUCCEEDED:
            return _withdrawn("JobEnded", f"PodMigrationJob {request.job} ended: {job.progress.phase}")
    return found


def with_withdrawals(view: ManagerView, drafts: Sequence[Draft]) -> list[Draft]:
    """Return facts, followed by those that withdraw the evictions of the migration jobs that they change."""
    return [*drafts, *(each for draft in drafts for each in _withdrawals(view, draft))]


def _withdrawals(view: ManagerView, draft: Draft) -> Iterator[Draft]:
    if not isinstance(draft.event, CustomObjectObserved | CustomObjectDeleted):
        return
    if plural_of(draft.ref.id) != MIGRATION_JOBS:
        return
    job = draft.event.object if isinstance(draft.event, CustomObjectObserved) else None
    for uid in view.evictions_of_job(name_from_token(draft.ref.id.partition("=")[2])):
        pending = view.state.of_kind(EvictionState)[uid]
        event = withdrawal_by_job(pending.request, job)
        if event is not None:
            yield Draft(AggregateRef("eviction", uid), event, pending.seq)


def _withdrawn(reason: str, message: str) -> PodEvictionWithdrawn:
    return PodEvictionWithdrawn(reason=reason, message=message)
