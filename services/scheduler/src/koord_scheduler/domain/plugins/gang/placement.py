"""Choose the nodes of a job by the network topology: together, in the deepest domain that has room for all members.

    1. The slots of a node are the number of members that fit on it one after another.
    2. Slots, scores and running pods of the job are summed up the tree. A layer with a pod count multiple counts only
       whole multiples.
    3. The search starts at the domains of the deepest MustGather layer, or at the cluster. It goes down as long as a
       domain has slots for all members.
    4. The best of the deepest such domains takes the members, child by child.

The work grows with the number of nodes that offer slots, and is done once per job.

Source: scheduler-core spec, 9; vectors scheduler/network_topology_place
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord_scheduler.domain.plugins.gang.parameters import MUST_GATHER, GatherRule
from koord_scheduler.domain.plugins.gang.topology import NODE_LAYER, Domain, NetworkTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Input of `place`: the number of members of a job, and the room that the nodes offer."""

    members: int  # Number of members, at least 1
    slots: Mapping[str, int]  # Node -> number of members that fit on it. Other nodes have no slots.
    gather: Sequence[GatherRule] = ()  # Gather rules per layer
    # Node -> number of running pods of the same job: those with the same value of the annotation
    # `scheduling.koordinator.sh/network-topology-selector`.
    existing: Mapping[str, int] = field(default_factory=dict[str, int])
    scores: Mapping[str, int] = field(default_factory=dict[str, int])  # Node -> score; higher is better


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """A node for each member of a job."""

    domain: str  # Id of the network domain that takes them
    nodes: tuple[str, ...]  # Name of one node per member, in the order of the members; shape (members,)


@dataclass(frozen=True, slots=True)
class NoTopologyPlan:
    """The result that no domain of the network has room for all members of the job."""

    # The domains where the search began, each with the number of members that fit into it.
    start: tuple[tuple[Domain, int], ...]
    demand: Demand  # The members that were to be placed, and the room of the nodes

    @property
    def slots(self) -> dict[str, int]:
        """Return id of a domain -> number of members that fit into it, for each domain where the search began."""
        return {domain.id: slots for domain, slots in self.start}

    def message(self, fit_error: str) -> str:
        """Return one sentence for users about the domains that lack slots."""
        domains = sorted(f"topology topologyNode {domain.layer}/{domain.name}: {slots}" for domain, slots in self.start)
        text = (
            f"no candidate topology nodes can accommodate job, desiredOfferSlot: {self.demand.members}, "
            f"{';'.join(domains)}, {fit_error}"
        )
        multiples = sorted(f"{layer}={count}" for layer, count in multiples_of(self.demand.gather).items())
        return f"{text}; podCountMultiple constraints: {', '.join(multiples)}" if multiples else text


@dataclass(slots=True, eq=False)
class _Offer:
    """Sums over one domain: slots, score, and running pods of the job."""

    slots: int = 0
    score: int = 0
    existing: int = 0


_NO_OFFER: Final = _Offer()


def place(topology: NetworkTopology, demand: Demand) -> TopologyPlan | NoTopologyPlan:
    """Choose a node for each member of a job: all in one domain of the network, as deep as possible. `demand`: the
    members, the room of the nodes, and the gather rules. Result: the nodes, or why no domain has room for all members.
    """
    multiples = multiples_of(demand.gather)
    offers = _offers(topology, demand, multiples)
    start = _start(topology, demand.gather)
    for candidate in _fewest_first(_candidates(start, offers, demand.members), offers):
        taken: list[tuple[str, int]] = []
        if _give_out(candidate, demand.members, offers, multiples, taken) == demand.members:
            nodes = tuple(node for node, count in taken for _ in range(count))
            return TopologyPlan(candidate.id, nodes)
    return NoTopologyPlan(tuple((domain, _of(offers, domain).slots) for domain in start), demand)


def order_nodes(topology: NetworkTopology, nodes: Sequence[str], existing: Mapping[str, int]) -> list[str]:
    """Return the nodes for one more pod of a running job, best first. A node is better if it is nearer to running pods
    of the job in the network. Among equals, a node in a domain with fewer candidate nodes is better. Nodes outside the
    topology come last, by name. `existing`: node -> number of running pods of the job.
    """
    offers = _offers(topology, Demand(members=1, slots=dict.fromkeys(nodes, 1), existing=existing), {})
    inside = [leaf for leaf in map(topology.leaf, nodes) if leaf is not None]
    return [leaf.name for leaf in _fewest_first(inside, offers)] + sorted(
        node for node in nodes if topology.leaf(node) is None
    )


def multiples_of(gather: Sequence[GatherRule]) -> dict[str, int]:
    """Return layer -> pod count multiple above 1. Layers that accept any number of pods are left out."""
    return {rule.layer: rule.pod_count_multiple for rule in gather if rule.pod_count_multiple > 1}


def _offers(topology: NetworkTopology, demand: Demand, multiples: Mapping[str, int]) -> dict[Domain, _Offer]:
    """Return the sums of every domain that has a slot, a score or a running pod below it."""
    offers: dict[Domain, _Offer] = {}
    multiple = multiples.get(NODE_LAYER, 1)
    for node in {**demand.slots, **demand.existing}:
        leaf = topology.leaf(node)
        if leaf is not None:
            score = demand.scores.get(node, 0) if node in demand.slots else 0
            slots = _whole(demand.slots.get(node, 0), multiple)
            offers[leaf] = _Offer(slots, score, demand.existing.get(node, 0))
    level = list(offers)
    while level:
        above: dict[Domain, None] = {}
        for domain in level:
            offer, parent = offers[domain], domain.parent
            if not domain.is_node:
                offer.slots = _whole(offer.slots, multiples.get(domain.layer, 1))
            if parent is not None:
                total = offers.get(parent)
                if total is None:
                    total = offers[parent] = _Offer()
                    above[parent] = None
                total.slots += offer.slots
                total.score += offer.score
                total.existing += offer.existing
        level = list(above)
    return offers


def _whole(slots: int, multiple: int) -> int:
    return slots // multiple * multiple


def _of(offers: Mapping[Domain, _Offer], domain: Domain) -> _Offer:
    return offers.get(domain, _NO_OFFER)


def _start(topology: NetworkTopology, gather: Sequence[GatherRule]) -> list[Domain]:
    """Return the domains where the search begins: those of the deepest MustGather layer, or the cluster. If none of the
    MustGather layers exists, there is no such domain.
    """
    layers = [rule.layer for rule in gather if rule.strategy == MUST_GATHER]
    if not layers:
        return [topology.root]
    depths = [depth for depth in map(topology.depth_of, layers) if depth is not None]
    return topology.domains_at(max(depths)) if depths else []


def _candidates(start: Sequence[Domain], offers: Mapping[Domain, _Offer], members: int) -> list[Domain]:
    """Return the deepest domains with slots for all members, whose parents up to the start have such slots as well."""
    candidates: list[Domain] = []
    level = list(start)
    while level := [domain for domain in level if _of(offers, domain).slots >= members]:
        candidates = level
        level = [child for domain in level for child in domain.children.values()]
    return candidates


def _fewest_first(domains: Sequence[Domain], offers: Mapping[Domain, _Offer]) -> list[Domain]:
    """Sort domains: most running pods of the job first, then fewest slots, then best score, then name. The first two
    are compared for the domain itself, then for its parent, and so on.
    """
    chains: dict[Domain, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def chain(domain: Domain) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = chains.get(domain)
        if found is None:
            own = _of(offers, domain)
            existing, slots = chain(domain.parent) if domain.parent is not None else ((), ())
            found = chains[domain] = ((-own.existing, *existing), (own.slots, *slots))
        return found

    return sorted(domains, key=lambda domain: (*chain(domain), -_of(offers, domain).score, domain.name))


def _give_out(
    domain: Domain,
    wanted: int,
    offers: Mapping[Domain, _Offer],
    multiples: Mapping[str, int],
    taken: list[tuple[str, int]],
) -> int:
    """Give up to `wanted` members to the nodes of the domain, and return the number given. Each node and its number of
    members is appended to `taken`.
    """
    offered = min(_of(offers, domain).slots, wanted)
    offered = _whole(offered, multiples.get(domain.layer, 1))
    if domain.is_node:
        taken.append((domain.name, offered))
        return offered
    left = offered
    for child in sorted(domain.children.values(), key=lambda child: _most_first(child, offers)):
        if left == 0:
            break
        left -= _give_out(child, left, offers, multiples, taken)
    return offered - left


def _most_first(child: Domain, offers: Mapping[Domain, _Offer]) -> tuple[int, int, int, str]:
    """Return the sort key among siblings: most running pods of the job, most slots, best score, name."""
    own = _of(offers, child)
    return -own.existing, -own.slots, -own.score, child.name
