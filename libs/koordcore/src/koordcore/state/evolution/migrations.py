"""Apply events of migrations: how PodMigrationJobs move pods to other nodes."""

from typing import Final

from msgspec.structs import replace

from koordcore.events.descheduling.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
)
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.evolution.evolve import Evolve, dropped
from koordcore.state.migrations import MigrationState

_EVICTION: Final = "Eviction"


def _held(state: MigrationState | None, event: MigrationHeld, at: StoredEvent) -> MigrationState:
    before = state or MigrationState(seq=at.seq)
    return replace(before, seq=at.seq, job=event.job, pod=event.pod, limits=event.limits)


def _arbitrated(state: MigrationState | None, event: MigrationArbitrated, at: StoredEvent) -> MigrationState:
    return replace(
        state or MigrationState(seq=at.seq),
        seq=at.seq,
        job=event.job,
        pod=event.pod,
        origin=event.node,
        controller=event.controller,
        trigger=event.trigger,
        reason=event.reason,
        round=event.round,
        profile=event.profile,
        limits=[],
        passed_at=at.occurred_at,
    )


def _advanced(state: MigrationState | None, event: MigrationAdvanced, at: StoredEvent) -> MigrationState:
    after = _with(state, event.progress, at)
    return replace(after, pod=event.pod, replicas=after.replicas if event.replicas is None else event.replicas)


def _ended(state: MigrationState | None, event: MigrationEnded, at: StoredEvent) -> MigrationState:
    return replace(_with(state, event.progress, at), job=event.job, pod=event.pod, ended_at=at.occurred_at)


def _with(state: MigrationState | None, progress: MigrationProgress, at: StoredEvent) -> MigrationState:
    """Return the state with a new progress. A condition that stays true or false keeps its time."""
    before = state or MigrationState(seq=at.seq)
    known = {each.type: each.is_true for each in before.progress.conditions}
    since = {
        each.type: before.since[each.type] if known.get(each.type) is each.is_true else at.occurred_at
        for each in progress.conditions
    }
    asked = any(each.type == _EVICTION for each in progress.conditions)
    return replace(
        before,
        seq=at.seq,
        limits=[],
        progress=progress,
        since=since,
        evicted_at=before.evicted_at or (at.occurred_at if asked else ""),
    )


OF_MIGRATIONS: Final[dict[type[Event], Evolve]] = {
    MigrationHeld: _held,
    MigrationArbitrated: _arbitrated,
    MigrationAdvanced: _advanced,
    MigrationEnded: _ended,
    MigrationForgotten: dropped,
}
