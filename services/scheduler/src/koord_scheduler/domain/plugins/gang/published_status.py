"""The last published status of quotas, gangs and the network. A status is published again only if it has changed.

Source:
    scheduler-core spec, 8.9, 10.9
"""

from dataclasses import dataclass, field

from koordcore.events.cluster import ClusterTopologyComputed, TopologyDomain
from koordcore.events.envelope import Event
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.quota import QuotaStatusComputed

from koord_scheduler.domain.plugins.gang.group import Gang
from koord_scheduler.domain.plugins.gang.parameters import PodGroupStatus
from koord_scheduler.domain.plugins.gang.roster import Roster
from koord_scheduler.domain.plugins.gang.topology import READ_OBJECT, NetworkTopology


@dataclass(slots=True)
class PublishedStatus:
    """The last published status of each quota by name, of each gang by `namespace/name`, and of the network.

    Our own statuses count before the log has stored them. They are undone if the log refuses them.

    Attributes:
        topology: Status of the ClusterNetworkTopology; None if nothing was published.
        topology_seen: The tree from which it was last computed, and the tree's `moves` at that time.
        next_look: Seconds of the service's `Clock` at which explanations and the network are examined again.
        next_topology: Seconds of the service's `Clock` at which the network's domains are examined again.
        next_control: `<scheduler name>/<plugin>` -> seconds of the service's `Clock`: the next run of its controller.
    """

    quotas: dict[str, QuotaStatusComputed] = field(default_factory=dict[str, QuotaStatusComputed])
    gangs: dict[str, GangPhaseChanged] = field(default_factory=dict[str, GangPhaseChanged])
    topology: ClusterTopologyComputed | None = None
    topology_seen: tuple[NetworkTopology | None, int] = (None, 0)
    next_look: float = 0.0
    next_topology: float = 0.0
    next_control: dict[str, float] = field(default_factory=dict[str, float])

    def takes(self, event: Event) -> bool:
        """Return whether an event must be published: False for a quota's status that equals the last published one.

        A new status of a quota is recorded as published. Events of other types are not recorded here.
        """
        if isinstance(event, QuotaStatusComputed):
            if self.quotas.get(event.name) == event:
                return False
            self.quotas[event.name] = event
        return True

    def gang_is(self, event: GangPhaseChanged, roster: Roster) -> None:
        """Record the status of a gang that the log has stored.

        If the gang's PodGroup exists, it gets the status as well.
        """
        gang_id = f"{event.namespace}/{event.name}"
        self.gangs[gang_id] = event
        gang = roster.gang(gang_id)
        if gang is not None and gang.has_pod_group:
            gang.status = status_of(event)

    def gang_unsaid(self, event: GangPhaseChanged, roster: Roster, *, again: bool) -> None:
        """Restore the previous status of a gang after the log refused a newer one.

        Args:
            event: The refused status.
            roster: Has the gang.
            again: Whether the gang is examined again at once, not only when it changes.
        """
        gang_id = f"{event.namespace}/{event.name}"
        gang = roster.gang(gang_id)
        if gang is not None and gang.has_pod_group:
            before = self.gangs.get(gang_id)
            gang.status = PodGroupStatus() if before is None else status_of(before)
            if again:
                roster.touched[gang_id] = None

    def topology_unsaid(self, event: ClusterTopologyComputed, *, again: bool) -> None:
        """Count a status of the network as not published, because the log refused it.

        Args:
            event: The refused status.
            again: Whether the network is examined again soon, not only when it changes.
        """
        if self.topology is event:
            self.topology = None
        if again:
            self.topology_seen = (None, 0)


def status_of(event: GangPhaseChanged) -> PodGroupStatus:
    """Return the event's status in the form of `PodGroup.status`."""
    return PodGroupStatus(**{name: getattr(event, name) for name in PodGroupStatus.__struct_fields__})


def phase_event(gang: Gang) -> GangPhaseChanged:
    """Return an event with the present status of the gang's PodGroup."""
    namespace, _, name = gang.id.partition("/")
    status = {name: getattr(gang.status, name) for name in PodGroupStatus.__struct_fields__}
    return GangPhaseChanged(namespace=namespace, name=name, **status)


def topology_event(topology: NetworkTopology) -> ClusterTopologyComputed:
    """Return an event with all domains of the network and their numbers of nodes."""
    domains = [
        TopologyDomain(
            layer=each.topology_info.topology_layer,
            name=each.topology_info.topology_name,
            parent_layer=each.parent_topology_info.topology_layer if each.parent_topology_info is not None else "",
            parent_name=each.parent_topology_info.topology_name if each.parent_topology_info is not None else "",
            child_layer=each.child_topology_layer,
            children=each.child_topology_names,
            nodes=each.node_num,
        )
        for each in topology.detail_status()
    ]
    return ClusterTopologyComputed(name=READ_OBJECT, domains=domains)
