"""Plan a job preemption: which pods must leave so that all pending members find room, and where each member goes. This
module only plans. The caller answers whether pods fit (`Fits`), evicts the victims and nominates the members.

Source: scheduler-core spec, 8.10; 16, pitfall 20
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordcore.protocol import keys

from koord_scheduler.domain.plugins.gang.parameters import GatherRule
from koord_scheduler.domain.plugins.gang.placement import Demand, NoTopologyPlan, place
from koord_scheduler.domain.plugins.gang.topology import NetworkTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVictim:
    """A pod that a job preemption may evict."""

    uid: str
    name: str  # Its `namespace/name`
    priority: int
    # Value of its label `scheduling.koordinator.sh/questioned-object-key`, which names its job; its uid if it has no
    # such label.
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPreemption:
    """A successful plan of a job preemption: nodes for all members, and the pods that must leave."""

    nominations: Mapping[str, str]  # Uid of a member -> the node that it is nominated to
    victims: Mapping[str, tuple[JobVictim, ...]]  # Node -> pods to evict there. A node without victims has no entry.

    def message(self, waiting: int, total: int) -> str:
        """Return the user's message about a successful preemption, with the number of members that wait at Permit.
        `waiting`: number of members that waited at Permit.
        """
        return f"preempt success, alreadyWaitingForBound: {waiting}/{total}"


@dataclass(frozen=True, slots=True)
class NoJobPreemption:
    """The result that no eviction makes room for all members of the job. The caller clears the members' nominations and
    rejects those that wait at Permit.
    """

    message: str  # Reason for the user


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """The rules of the network topology for the members of a job."""

    topology: NetworkTopology
    gather: Sequence[GatherRule]  # Gather rules per layer
    existing: Mapping[str, int]  # Node -> number of running pods of the same job


Fits = Callable[[str, Sequence[JobVictim], Sequence[str]], bool]
"""(node, kept, members) -> whether all `members` fit on the node if only `kept` of its possible victims stay."""


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether a job preemption may evict a pod with these labels. It may not if
    `scheduling.koordinator.sh/disable-preemptible` is "true" or `quota.scheduling.koordinator.sh/preemptible` is
    "false". Without these labels it may.
    Source: scheduler-core spec, 6
    """
    return labels.get(keys.DISABLE_PREEMPTIBLE) != "true" and labels.get(keys.QUOTA_PREEMPTIBLE) != "false"


def possible_victim(uid: str, name: str, priority: int, labels: Mapping[str, str], below: int) -> JobVictim | None:
    """Return the pod as a possible victim, or None if it must not be evicted. It must not be evicted if its labels
    forbid it, or if its priority is not below `below`. `name`: its `namespace/name`.
    """
    if priority >= below or not is_preemptible(labels):
        return None
    return JobVictim(uid=uid, name=name, priority=priority, job=labels.get(keys.QUESTIONED_OBJECT_KEY) or uid)


def plan_job_preemption(
    members: Sequence[str],
    kinds: Sequence[int],
    victims: Mapping[str, Sequence[JobVictim]],
    fits: Fits,
    rules: TopologyRules | None = None,
) -> JobPreemption | NoJobPreemption:
    """Return nodes for all members and the pods to evict, or why there is no such plan. Without a possible victim on
    any node there is no plan. On each node that members go to, only the possible victims that do not fit beside them
    are evicted (`evict_least`).

    Args:
        kinds: A number for each member, shape (members,). Members with equal numbers have equal requirements.
        victims: Candidate node -> its possible victims; no node that preemption cannot make feasible.
        fits: (node, victims that stay, members) -> whether all these members fit on the node.
        rules: Topology rules. Without them, each member goes to the node with the least cost that has room.
    """
    if not any(victims.values()):
        return NoJobPreemption("no victims found on any node")
    cost = costs(victims)
    if rules is None:
        placed = _place_cheapest(members, kinds, cost, fits)
    else:
        placed = _place_gathered(members, cost, fits, rules)
    if isinstance(placed, NoJobPreemption):
        return placed
    on_node: dict[str, list[str]] = {}
    for uid, node in placed.items():
        on_node.setdefault(node, []).append(uid)
    evicted = {node: evict_least(node, victims.get(node, ()), on_node[node], fits) for node in sorted(on_node)}
    return JobPreemption(nominations=placed, victims={node: pods for node, pods in evicted.items() if pods})


def costs(victims: Mapping[str, Sequence[JobVictim]]) -> dict[str, int]:
    """Return node -> cost of evicting all its possible victims. The cost is the sum over the distinct victim jobs on
    the node. A job costs the rank of its highest priority on the node among the priorities of all victims; the lowest
    rank is 0.
    """
    levels = sorted({victim.priority for pods in victims.values() for victim in pods})
    rank = {priority: index for index, priority in enumerate(levels)}
    found: dict[str, int] = {}
    for node, pods in victims.items():
        highest: dict[str, int] = {}
        for victim in pods:
            highest[victim.job] = max(rank[victim.priority], highest.get(victim.job, 0))
        found[node] = sum(highest.values())
    return found


def evict_least(node: str, victims: Iterable[JobVictim], members: Sequence[str], fits: Fits) -> tuple[JobVictim, ...]:
    """Return the victims that must leave the node so that all given members fit on it. Each victim is tried from the
    highest priority down. A victim stays if all members still fit with it and with the victims that stay already.
    `members`: uids of the members that go to the node. `fits`: (node, victims that stay, members) -> whether all these
    members fit on the node.
    """
    kept: list[JobVictim] = []
    evicted: list[JobVictim] = []
    for victim in sorted(victims, key=lambda pod: (-pod.priority, pod.job, pod.name)):
        if fits(node, [*kept, victim], members):
            kept.append(victim)
        else:
            evicted.append(victim)
    return tuple(evicted)


def _place_cheapest(
    members: Sequence[str], kinds: Sequence[int], cost: Mapping[str, int], fits: Fits
) -> dict[str, str] | NoJobPreemption:
    """Place each member on the cheapest node that has room after the earlier placements. If a node has no room for a
    kind, later members of that kind skip it. Each kind visits a node once.
    """
    nodes = sorted(cost, key=lambda node: (cost[node], node))
    on_node: dict[str, list[str]] = {node: [] for node in nodes}
    tried = dict.fromkeys(kinds, 0)
    placed: dict[str, str] = {}
    for uid, kind in zip(members, kinds, strict=True):
        while tried[kind] < len(nodes):
            node = nodes[tried[kind]]
            if fits(node, (), [*on_node[node], uid]):
                on_node[node].append(uid)
                placed[uid] = node
                break
            tried[kind] += 1
        else:
            return NoJobPreemption(
                f"member {uid} fits on no node even without all victims, {len(placed)}/{len(members)} members placed"
            )
    return placed


def _place_gathered(
    members: Sequence[str], cost: Mapping[str, int], fits: Fits, rules: TopologyRules
) -> dict[str, str] | NoJobPreemption:
    demand = Demand(
        members=len(members),
        slots={node: _slots(node, members, fits) for node in cost},
        gather=rules.gather,
        existing=rules.existing,
        scores={node: -each for node, each in cost.items()},
    )
    found = place(rules.topology, demand)
    if isinstance(found, NoTopologyPlan):
        return NoJobPreemption(found.message("even without all victims"))
    return dict(zip(members, found.nodes, strict=True))


def _slots(node: str, members: Sequence[str], fits: Fits) -> int:
    """Return how many members, in their order, fit on the node one after another if all possible victims leave."""
    count = 0
    while count < len(members) and fits(node, (), members[: count + 1]):
        count += 1
    return count
