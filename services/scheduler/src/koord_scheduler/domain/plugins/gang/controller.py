"""The status that the scheduler writes on a PodGroup: phase, counters, and the owners of its first pod.

Source: scheduler-core spec, 8.9; vectors scheduler/podgroup_phase
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from koordcore.events.gang import GangPhaseChanged, gang_ref
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.framework.lifecycle_hooks import Status
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.group import Gang
from koord_scheduler.domain.plugins.gang.parameters import PodGroupStatus

PENDING: Final = "Pending"
PRE_SCHEDULING: Final = "PreScheduling"
SCHEDULING: Final = "Scheduling"
SCHEDULED: Final = "Scheduled"
RUNNING: Final = "Running"
FAILED: Final = "Failed"
FINISHED: Final = "Finished"
STALE_AFTER: Final = timedelta(hours=48)


def reconcile(gang: Gang, now: str) -> PodGroupStatus | None:
    """Return the new status of the gang's PodGroup, or None if it has no PodGroup or the status does not change. The
    gang stores the returned status for the next call. `Roster.touched` lists the gangs whose status may have changed.
    `now`: RFC 3339 time.
    """
    if not gang.has_pod_group or gang.parameters is None:
        return None
    first = next(iter(gang.known.values()), None)
    occupied_by = "" if first is None else pod_info(first.namespace, first.owners)
    minimum = gang.parameters.min_members
    status = next_status(gang.status, minimum, gang.phases, len(gang.bound), occupied_by=occupied_by, now=now)
    if status == gang.status:
        return None
    gang.status = status
    return status


def next_status(
    status: PodGroupStatus, min_member: int, pod_phases: Mapping[str, int], bound: int, *, occupied_by: str, now: str
) -> PodGroupStatus:
    """Return the status of a PodGroup after its pods have changed. It equals the present one if nothing changed.

    Args:
        min_member: Number of members that the gang needs.
        pod_phases: `status.phase` -> number of the gang's pods in it.
        occupied_by: Owners of the first pod, see `pod_info`. Used only while the status names no owners.
        now: RFC 3339 time, stored in `scheduleStartTime` when fewer than `min_member` members are bound for the first
            time.
    """
    pods = sum(pod_phases.values())
    if status.phase == "":
        return msgspec.structs.replace(status, phase=PENDING)
    if status.phase == PENDING:
        if pods < min_member or min_member <= 0:
            return status
        return msgspec.structs.replace(status, phase=PRE_SCHEDULING, occupied_by=status.occupied_by or occupied_by)
    if pods == 0:
        return msgspec.structs.replace(status, phase=PENDING)
    running, succeeded, failed = (pod_phases.get(phase, 0) for phase in ("Running", "Succeeded", "Failed"))
    started_at = status.schedule_start_time
    phase = SCHEDULED
    if bound < min_member:
        phase, started_at = SCHEDULING, started_at or now
    elif succeeded + running >= min_member:
        phase = RUNNING
    if failed > 0 and failed + running + succeeded >= min_member:
        phase = FAILED
    if succeeded >= min_member:
        phase = FINISHED
    return msgspec.structs.replace(
        status,
        phase=phase,
        scheduled=bound,
        running=running,
        succeeded=succeeded,
        failed=failed,
        schedule_start_time=started_at,
    )


def pod_info(namespace: str, owners: tuple[str, ...]) -> str:
    """Return the owners of a pod as the text of `status.occupiedBy`: sorted `namespace/name`, joined by commas."""
    return ",".join(sorted(f"{namespace}/{name}" for name in owners))


def is_settled(status: PodGroupStatus, min_member: int, created_at: datetime, now: datetime) -> bool:
    """Return whether the status of a PodGroup is final, so that it need not be computed again. It is final if the phase
    is Finished or Failed. It is also final if at least `min_member` pods were scheduled, none runs, and the PodGroup is
    older than 48 hours. `min_member`: number of members that the gang needs.
    """
    if status.phase in (FINISHED, FAILED):
        return True
    return status.scheduled >= min_member > 0 and status.running == 0 and now - created_at > STALE_AFTER


def phase_event(gang: Gang) -> GangPhaseChanged:
    """Return an event with the present status of the gang's PodGroup."""
    namespace, _, name = gang.id.partition("/")
    status = {name: getattr(gang.status, name) for name in PodGroupStatus.__struct_fields__}
    return GangPhaseChanged(namespace=namespace, name=name, **status)


def gang_phases(gangs: GangCache, now: float) -> Sequence[Status]:
    """Return the new status of each PodGroup whose status has changed, as events to publish. `now`: Unix seconds of the
    service's `Clock`.
    """
    roster = gangs.roster
    touched, roster.touched = roster.touched, {}
    moment = datetime.fromtimestamp(now, UTC)
    statuses: list[Status] = []
    for gang_id in touched:
        gang = roster.gang(gang_id)
        if gang is None or gang.group is None or gang.parameters is None:
            continue
        if gang.group.binding or (gangs.round is not None and gang_id in gangs.round.gang_ids):
            # Its placements are on their way, with a fact about the same aggregate: the log would refuse one of them.
            roster.touched[gang_id] = None
            continue
        if is_settled(gang.status, gang.parameters.min_members, _moment(gang.created_at, moment), moment):
            continue
        before = gang.status
        while reconcile(gang, rfc3339(moment)) is not None:
            pass
        if gang.status != before:
            event = phase_event(gang)
            statuses.append(Status(gang_ref(event.namespace, event.name), event))
    return statuses


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
