"""Publishes the phases of PodGroups.

Source: scheduler-core spec, 8.9.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from koordcore.events.gang import gang_ref
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.framework.lifecycle_hooks import Status
from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.phase import is_settled, reconcile
from koord_scheduler.domain.status.published_status import phase_event


def gang_phases(gangs: GangCache, now: float) -> Sequence[Status]:
    """Return the new status of each PodGroup whose status has changed, as events to publish.

    Args:
        gangs: All gangs.
        now: Unix seconds of the service's `Clock`.
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
