"""What schedulers have said of quotas and gangs, by the log: it is said again only when it has changed.

source    scheduler-core spec, 8.9, 10.9
"""

from dataclasses import dataclass, field

from koordcore.events.gang import GangPhaseChanged
from koordcore.events.quota import QuotaStatusComputed

from koord_scheduler.domain.gang.group import Gang
from koord_scheduler.domain.gang.parameters import PodGroupStatus
from koord_scheduler.domain.gang.roster import Roster


@dataclass(slots=True)
class Said:
    """The last statement about each quota, by name, and each gang, by `namespace/name`; ours count before the log has
    them and are taken back when it refuses.

    next_look      when quotas and gangs are looked at again, seconds of the run's clock
    next_revoke    when overuse is looked at again
    """

    quotas: dict[str, QuotaStatusComputed] = field(default_factory=dict[str, QuotaStatusComputed])
    gangs: dict[str, GangPhaseChanged] = field(default_factory=dict[str, GangPhaseChanged])
    next_look: float = 0.0
    next_revoke: float = 0.0

    def gang_is(self, event: GangPhaseChanged, roster: Roster) -> None:
        """The log has this status of a gang; a PodGroup that does not exist has none."""
        gang_id = f"{event.namespace}/{event.name}"
        self.gangs[gang_id] = event
        gang = roster.gang(gang_id)
        if gang is not None and gang.has_pod_group:
            gang.status = status_of(event)

    def gang_unsaid(self, event: GangPhaseChanged, roster: Roster) -> None:
        """The log has not taken this status: the gang has the one before, and is to be looked at again."""
        gang_id = f"{event.namespace}/{event.name}"
        gang = roster.gang(gang_id)
        if gang is not None and gang.has_pod_group:
            before = self.gangs.get(gang_id)
            gang.status = PodGroupStatus() if before is None else status_of(before)
            roster.touched[gang_id] = None


def status_of(event: GangPhaseChanged) -> PodGroupStatus:
    """The PodGroup's status that the event states."""
    return PodGroupStatus(**{name: getattr(event, name) for name in PodGroupStatus.__struct_fields__})


def phase_event(gang: Gang) -> GangPhaseChanged:
    """The event that states the gang's status."""
    namespace, _, name = gang.id.partition("/")
    status = {name: getattr(gang.status, name) for name in PodGroupStatus.__struct_fields__}
    return GangPhaseChanged(namespace=namespace, name=name, **status)
