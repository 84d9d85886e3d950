"""The plan of a scheduling round: nodes for all members of a group at once, by the network topology.

    needs_plan    whether the attempt of the pod has to make the plan
    plan_round    makes the plan and stores it in the round

Afterwards `Round.node_set` restricts every member to its planned node.

Source:
    scheduler-core spec, 9
"""

from collections.abc import Mapping, Sequence

from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.parameters import GatherRule
from koord_scheduler.domain.gang.placement import Demand, NoTopologyPlan, TopologyPlan, place
from koord_scheduler.domain.gang.topology import NetworkTopology


def needs_plan(cache: GangCache, uid: str) -> Sequence[GatherRule] | None:
    """Return the gather rules of the pod's gang if this attempt must plan the nodes of the whole group, else None.

    The attempt must plan if it began the round, the round has no plan yet, and the gang has network topology rules.
    Without the argument `awareNetworkTopology` of Coscheduling, no attempt plans.
    """
    current = cache.round_of(uid)
    gang = cache.roster.gang_of(uid)
    if not cache.args.aware_network_topology or current is None or current.first_uid != uid or current.plan is not None:
        return None
    return None if gang is None or gang.parameters is None else gang.parameters.gather


def plan_round(
    cache: GangCache,
    uid: str,
    gather: Sequence[GatherRule],
    topology: NetworkTopology,
    slots: Mapping[str, int],
    existing: Mapping[str, int],
) -> TopologyPlan | NoTopologyPlan:
    """Plan nodes for all pending members of the pod's group. A plan is stored as `Round.plan`.

    Args:
        cache: All gangs.
        uid: Uid of the pod whose attempt began the round.
        gather: Gather rules of its gang.
        topology: The network.
        slots: Node -> number of members that fit on it one after another, by all filters.
        existing: Node -> number of running pods of the same job, see `RunningPeers`.

    Returns:
        The plan, or why there is none. Without a plan the pod is unschedulable.
    """
    members = cache.members_to_place(uid)
    found = place(topology, Demand(members=len(members), slots=slots, gather=gather, existing=existing))
    current = cache.round_of(uid)
    if current is not None and isinstance(found, TopologyPlan):
        current.plan = {member.uid: node for member, node in zip(members, found.nodes, strict=True)}
    return found
