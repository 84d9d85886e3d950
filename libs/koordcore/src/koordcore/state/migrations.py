"""How far a PodMigrationJob has moved its pod, and how far a plan is that makes room for a waiting gang.

The events are in `koordcore.events.migration`.
"""

from typing import Final

from msgspec.structs import replace

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
    RepackCommitted,
    RepackEnded,
    RepackForgotten,
    RepackMoved,
    RepackPlanned,
)
from koordcore.state.fold import AggregateState, Evolve, dropped


class MigrationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of the migration of one pod by a PodMigrationJob. Times are RFC 3339; "" means never."""

    job: str = ""  # Name of the PodMigrationJob; "" after the job was deleted
    pod: MigratedPod | None = None  # The pod to migrate; None if the job names none
    origin: str = ""  # Node of the pod before its migration
    controller: str = ""  # Uid of the controller of the pod; "" if it has none
    trigger: str = ""  # Plugin, drain or user that created the job
    reason: str = ""  # Why the job was created
    round: str = ""  # RFC 3339 time of the round that created it; "" if no round did
    profile: str = ""  # Profile whose plugin created it; "" if none did
    # Codes of the limits because of which the job waits, before arbitration or before the eviction; empty if it does
    # not wait.
    limits: list[str] = []
    progress: MigrationProgress = MigrationProgress()  # Status of the job
    since: dict[str, str] = {}  # Type of a condition -> time at which it became true or false
    passed_at: str = ""  # When the job passed arbitration
    evicted_at: str = ""  # When the eviction of the pod was requested
    soft_eviction: str = ""  # Text of the soft-eviction annotation that the job set on its pod; "" if it set none
    # Replicas that the workload of the pod should have had then; None if it has no known workload.
    replicas: int | None = None
    ended_at: str = ""  # When the job succeeded, failed or was aborted


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
    return replace(
        after,
        pod=event.pod,
        controller=after.controller or event.controller,
        replicas=after.replicas if event.replicas is None else event.replicas,
        soft_eviction=after.soft_eviction if event.soft_eviction is None else event.soft_eviction.after,
    )


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


DONE: Final = "done"
ROLLED_BACK: Final = "rolled_back"
INCOMPLETE: Final = "incomplete"


class RepackState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A plan of the descheduler, and how far it is. Times are RFC 3339; "" means never."""

    plan: RepackPlanned
    planned_at: str  # When it was made
    committed_at: str = ""  # When the Reservations of all its moves were available
    moved_at: str = ""  # When all its pods had moved, if the gang still waited then
    ended_at: str = ""  # When it ended
    result: str = ""  # `DONE`, `ROLLED_BACK` or `INCOMPLETE`; "" while it has not ended
    reason: str = ""  # Why it ended so, as a sentence

    @property
    def phase(self) -> str:
        """The result of the plan as one word; while it has not ended, the thing that it waits for. "reserving":
        Reservations for its moves; "moving": its pods; "holding": the gang, after all pods have moved.
        """
        return self.result or ("holding" if self.moved_at else "moving" if self.committed_at else "reserving")


def _planned(_: RepackState | None, event: RepackPlanned, at: StoredEvent) -> RepackState:
    return RepackState(seq=at.seq, plan=event, planned_at=at.occurred_at)


def _committed(state: RepackState | None, _: RepackCommitted, at: StoredEvent) -> RepackState | None:
    return None if state is None else replace(state, seq=at.seq, committed_at=at.occurred_at)


def _moved(state: RepackState | None, _: RepackMoved, at: StoredEvent) -> RepackState | None:
    return None if state is None else replace(state, seq=at.seq, moved_at=at.occurred_at)


def _repack_ended(state: RepackState | None, event: RepackEnded, at: StoredEvent) -> RepackState | None:
    if state is None:
        return None
    return replace(state, seq=at.seq, ended_at=at.occurred_at, result=event.result, reason=event.reason)


OF_REPACKS: Final[dict[type[Event], Evolve]] = {
    RepackPlanned: _planned,
    RepackCommitted: _committed,
    RepackMoved: _moved,
    RepackEnded: _repack_ended,
    RepackForgotten: dropped,
}
