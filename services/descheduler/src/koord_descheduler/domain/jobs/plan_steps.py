"""The steps of a plan: when its pods may leave, and when it is rolled back.

No pod of a plan leaves before the Reservations of all its moves are available. This decision is one fact, so a process
that dies in between leaves either a plan that goes on, or one whose Reservations are given back.
"""

from collections.abc import Mapping
from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.migration import RepackCommitted, RepackEnded, RepackMoved
from koordcore.state.migrations import DONE, INCOMPLETE, ROLLED_BACK, RepackState
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs.job import ConditionType, MigrationJob, Phase

UNSEEN_SECONDS: Final = 60.0
"""Time that the jobs of a plan have to become visible. An API server tells of them later."""
HELD_SECONDS: Final = 300.0
"""Time for which the GPUs are held for a gang that still waits after all pods have moved."""
KEPT_SECONDS: Final = 3600.0
"""Time for which an ended plan is remembered, so that no other plan for the same gang follows at once."""


def repack_ref(plan: str) -> AggregateRef:
    return AggregateRef("repack", plan)


def next_step(
    state: RepackState, jobs: Mapping[str, MigrationJob], available: Mapping[str, str], *, is_waiting: bool, now: float
) -> Event | None:
    """Return the fact of the next step of a plan that has not ended; None if it has to wait.

    RepackCommitted: the Reservations of all moves are available, so its pods may leave. RepackMoved: all pods have
    moved, and the gang still waits. RepackEnded: the plan is rolled back, done, or incomplete because a move failed
    after the commit.

    Args:
        jobs: Name -> PodMigrationJob, of all jobs.
        available: Name of a Reservation that is available -> its node.
        is_waiting: Whether a member of the gang still waits for a node.
        now: Unix seconds.
    """
    found = {move.job: jobs.get(move.job) for move in state.plan.moves}
    if state.moved_at:
        is_over = not is_waiting or now - unix_seconds(state.moved_at) >= HELD_SECONDS
        return _done(state, is_waiting=is_waiting) if is_over else None
    if state.committed_at:
        return _ending(state, found, is_waiting=is_waiting)
    lost = _lost(found, unix_seconds(state.planned_at), now)
    if not lost and not is_waiting:
        lost = f"no pod of {state.plan.gang} waits any more"
    if lost:
        return RepackEnded(result=ROLLED_BACK, reason=lost)
    nodes: dict[str, str] = {}
    for name, job in found.items():
        scheduled = None if job is None else job.condition(ConditionType.RESERVATION_SCHEDULED)
        if job is None or scheduled is None or not scheduled.is_true or job.reservation not in available:
            return None
        nodes[name] = available[job.reservation]
    return RepackCommitted(reservations=nodes)


def rolled_back(job: MigrationJob, state: RepackState | None) -> MigrationJob | None:
    """The job in phase Failed, because its plan was rolled back; None if it was not.

    `state`: that of the plan; None if the job has no plan, or if the plan ended long ago.
    """
    if state is None or state.result != ROLLED_BACK or not job.is_in_flight:
        return None
    return job.rolled_back(f"The plan for {state.plan.gang} was rolled back: {state.reason}")


def reservations_of(state: RepackState, jobs: Mapping[str, MigrationJob]) -> list[str]:
    """Names of the Reservations of a plan, as far as its jobs have created them."""
    found = (jobs.get(move.job) for move in state.plan.moves)
    return [job.reservation for job in found if job is not None and job.reservation]


def is_forgettable(state: RepackState, now: float) -> bool:
    return bool(state.ended_at) and now - unix_seconds(state.ended_at) >= KEPT_SECONDS


def _lost(found: Mapping[str, MigrationJob | None], planned: float, now: float) -> str:
    """Why a plan cannot be carried out any more; "" if there is no reason."""
    for name, job in found.items():
        if job is None:
            if now - planned > UNSEEN_SECONDS:
                return f"there is no PodMigrationJob {name}"
        elif job.phase is Phase.SUCCEEDED:
            return f"PodMigrationJob {name} ended before the others"
        elif not job.is_in_flight:
            return f"PodMigrationJob {name} {job.phase.lower()}: {job.message or job.reason}"
    return ""


def _ending(state: RepackState, found: Mapping[str, MigrationJob | None], *, is_waiting: bool) -> Event | None:
    """The fact that the moves of a committed plan are over; None while a job is in flight.

    A deleted job counts as failed.
    """
    if any(job is not None and job.is_in_flight for job in found.values()):
        return None
    failed = [
        f"{name} ({'deleted' if job is None else job.message or job.reason})"
        for name, job in found.items()
        if job is None or job.phase is not Phase.SUCCEEDED
    ]
    if not failed:
        return RepackMoved() if is_waiting else _done(state, is_waiting=False)
    return RepackEnded(result=INCOMPLETE, reason=f"not moved after the commit: {', '.join(sorted(failed))}")


def _done(state: RepackState, *, is_waiting: bool) -> RepackEnded:
    """The end of a plan whose pods have moved. `is_waiting`: its gang did not get its nodes in time."""
    gang = state.plan.gang
    outcome = f"{gang} still waits after {HELD_SECONDS:.0f} s" if is_waiting else f"no pod of {gang} waits any more"
    return RepackEnded(result=DONE, reason=f"all {len(state.plan.moves)} pods have moved, and {outcome}")
