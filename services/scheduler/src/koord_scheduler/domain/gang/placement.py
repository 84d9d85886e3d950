"""Where the members of a job go in the network: together, as deep in the tree as they fit.

    1. every node offers slots: as many members as fit on it, one after another
    2. slots, scores and running pods of the job are summed up the tree; a layer with a pod count multiple counts only
       whole multiples
    3. from the domains of the deepest MustGather layer (else the cluster) down, as long as a domain has slots for all
    4. among the deepest such domains the best one takes the members, child by child
The work grows with the nodes that offer slots, and is done once per job.

Source:
    scheduler-core spec, 9; vectors scheduler/network_topology_place
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord_scheduler.domain.gang.parameters import MUST_GATHER, GatherRule
from koord_scheduler.domain.gang.topology import Domain, NetworkTopology
from koord_scheduler.domain.gang.topology_layers import NODE_LAYER


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be placed, and on what.

    Attributes:
        members: Number of members, at least 1.
        slots: Node -> members that fit on it; absent: none.
        gather: Rules per layer.
        existing: Node -> running pods of the same job (same network-topology-selector).
        scores: Node -> score; higher is better.
    """

    members: int
    slots: Mapping[str, int]
    gather: Sequence[GatherRule] = ()
    existing: Mapping[str, int] = field(default_factory=dict[str, int])
    scores: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """A place for everybody. domain: id of the domain; nodes: shape (members,), in the order of the members."""

    domain: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoTopologyPlan:
    """There is none. start: the domains where the search began, with their slots."""

    start: tuple[tuple[Domain, int], ...]
    demand: Demand

    @property
    def slots(self) -> dict[str, int]:
        """Id of a start domain -> its slots."""
        return {domain.id: slots for domain, slots in self.start}

    def message(self, fit_error: str) -> str:
        """Return one sentence for users. `fit_error` says why the nodes offer no more room."""
        domains = sorted(f"topology topologyNode {domain.layer}/{domain.name}: {slots}" for domain, slots in self.start)
        text = (
            f"no candidate topology nodes can accommodate job, desiredOfferSlot: {self.demand.members}, "
            f"{';'.join(domains)}, {fit_error}"
        )
        multiples = sorted(f"{layer}={count}" for layer, count in multiples_of(self.demand.gather).items())
        return f"{text}; podCountMultiple constraints: {', '.join(multiples)}" if multiples else text


@dataclass(slots=True, eq=False)
class _Offer:
    """Sums of one domain."""

    slots: int = 0
    score: int = 0
    existing: int = 0


_NO_OFFER: Final = _Offer()


def place(topology: NetworkTopology, demand: Demand) -> TopologyPlan | NoTopologyPlan:
    """Return the nodes of all members, or none of them."""
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
    """Return the nodes, best first, for one more pod of a job.

    Near its running pods, then where the fewest nodes are left.

    Every node counts as one slot; nodes outside the topology come last, by name.
    """
    offers = _offers(topology, Demand(members=1, slots=dict.fromkeys(nodes, 1), existing=existing), {})
    inside = [leaf for leaf in map(topology.leaf, nodes) if leaf is not None]
    return [leaf.name for leaf in _fewest_first(inside, offers)] + sorted(
        node for node in nodes if topology.leaf(node) is None
    )


def multiples_of(gather: Sequence[GatherRule]) -> dict[str, int]:
    """Layer -> number of which a domain takes only multiples; layers without such a rule are absent."""
    return {rule.layer: rule.pod_count_multiple for rule in gather if rule.pod_count_multiple > 1}


def _offers(topology: NetworkTopology, demand: Demand, multiples: Mapping[str, int]) -> dict[Domain, _Offer]:
    """Sums of every domain with a slot, a score or a running pod below it."""
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
    """Domains of the deepest layer in which the job must gather; of none that exists: nowhere."""
    layers = [rule.layer for rule in gather if rule.strategy == MUST_GATHER]
    if not layers:
        return [topology.root]
    depths = [depth for depth in map(topology.depth_of, layers) if depth is not None]
    return topology.domains_at(max(depths)) if depths else []


def _candidates(start: Sequence[Domain], offers: Mapping[Domain, _Offer], members: int) -> list[Domain]:
    """Domains of the deepest level with slots for all members, reached through domains that have them, too."""
    candidates: list[Domain] = []
    level = list(start)
    while level := [domain for domain in level if _of(offers, domain).slots >= members]:
        candidates = level
        level = [child for domain in level for child in domain.children.values()]
    return candidates


def _fewest_first(domains: Sequence[Domain], offers: Mapping[Domain, _Offer]) -> list[Domain]:
    """Most running pods of the job, then fewest slots, each in the domain, then its parent, ...; best score; name."""
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
    """Hand up to `wanted` members to the domain's nodes; appends (node, members) and returns how many it took."""
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
    """Among siblings: most running pods of the job, then most slots, best score, name."""
    own = _of(offers, child)
    return -own.existing, -own.slots, -own.score, child.name
