"""Rules that must hold in every log, checked from its events alone.

Nothing is taken from a service's state: requests come from the mirrored pod, capacity from the mirrored node and the
published overcommit, placements from their events. Feed every event of the stream of facts in order to `Audit.see`,
then call `findings`.

A pod must not be placed while it is already placed. The pods on a node must not request more of a resource than the
node offers; for batch resources and devices this is the highest amount that was published since the position of the
decision.

The ledger of a node and the events of the pods must name the same pods. A pod must not be given a CPU, a share of a
device, a virtual function or a part of a reservation that was not free. The pods of a NUMA zone must not be given more
than the zone has. Every submitted pod must be placed or have an
explanation.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from koordcore.events import objects
from koordcore.events.envelope import Event, StoredEvent, name_from_token, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeOvercommitComputed
from koordcore.events.nodestate import PodsStarted
from koordcore.events.objects import CustomObjectObserved, plural_of
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.hardware.node_topology import topology_from
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.resource_names import GPU_CORE
from koordcore.state.allocation_rules import objections
from koordcore.values.allocation import NOTHING, Allocation, is_reservation
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
PODS = "pods"


@dataclass(slots=True)
class _Node:
    allocatable: Amounts = field(default_factory=dict[str, int])
    # (position, batch-cpu, batch-memory) of each published overcommit, oldest first.
    batch: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    # (position, amounts) of the resources of its devices, as they were published, oldest first.
    devices: list[tuple[int, Amounts]] = field(default_factory=list[tuple[int, Amounts]])
    requested: Amounts = field(default_factory=dict[str, int])  # Sum of the requests of its pods
    pods: set[str] = field(default_factory=set[str])  # Uids of its pods, by their own events
    ledger: dict[str, PodOnNode] = field(default_factory=dict[str, PodOnNode])  # Its pods by uid, by the node's ledger
    # NUMA zone -> resource -> highest allocatable amount that was stated; empty if its CPUs are amplified.
    zones: dict[int, Amounts] = field(default_factory=dict[int, Amounts])

    def offered(self, resource: str, since: int) -> int:
        """For batch resources and devices, this is the highest amount in force at any position after `since`."""
        if resource not in (BATCH_CPU, BATCH_MEMORY):
            most = self.allocatable.get(resource, 0)
            for position, amounts in reversed(self.devices):
                most = max(most, amounts.get(resource, 0))
                if position <= since:
                    break
            return most
        column = 1 if resource == BATCH_CPU else 2
        most = 0
        for entry in reversed(self.batch):
            most = max(most, entry[column])
            if entry[0] <= since:
                break
        return most

    def take_zones(self, raw: dict[str, Any]) -> None:
        """Record what the NUMA zones have. An invalid object is ignored, as the scheduler ignores it."""
        topology = topology_from(raw)
        if topology is None or keys.RESOURCE_AMPLIFICATION_RATIO in topology.metadata.annotations:
            return
        for zone in topology.zones:
            if zone.id is None:
                continue
            with suppress(InvalidInput):
                known = self.zones.setdefault(zone.id, {})
                for name, amount in parse_amounts({each.name: each.allocatable for each in zone.resources}).items():
                    known[name] = max(known.get(name, 0), amount)

    def exceeded_zones(self, touched: Iterable[int]) -> list[str]:
        """A sentence for each of these zones whose pods hold more than the zone ever had."""
        found: list[str] = []
        for zone in sorted(set(touched) & self.zones.keys()):
            held: Amounts = {}
            for uid, pod in self.ledger.items():
                is_owner = pod.allocation.reservation is not None and not is_reservation(uid, pod.allocation)
                if is_owner or pod.allocation.ignores_reservations:
                    continue  # it takes its share from a Reservation, which is counted
                for part in pod.allocation.zones:
                    if part.zone == zone:
                        for name, amount in part.amounts.items():
                            held[name] = held.get(name, 0) + amount
            limits = self.zones[zone]
            found += [
                f"zone {zone} has {limits[name]} of {name}, and its pods hold {amount}"
                for name, amount in sorted(held.items())
                if name in limits and amount > limits[name]
            ]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    pods: int  # Number of pods with GPUs
    shared: int  # Number of GPUs that more than one pod holds
    held: int  # Sum of what pods hold, in percent of a single GPU: 100 is one whole GPU
    offered: int  # 100 for each healthy GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The broken invariants, one sentence each, and numbers of pods at the end of the log."""

    double_placements: tuple[str, ...]  # Pods that were placed while placed
    overcommitted: tuple[str, ...]  # Placements that exceed the allocatable amounts of a node
    overcommitted_nodes: int  # Number of such nodes
    ledger_differences: tuple[str, ...]  # Differences between the ledgers of nodes and the events of pods
    allocations: tuple[str, ...]  # Allocations of CPUs, devices or shares that another pod held already
    unexplained: tuple[str, ...]  # Pods that are neither placed nor explained
    submitted: int  # Number of submitted pods that were not deleted
    placed: int  # Number of these pods that are placed
    started: int  # Number of these pods that run
    pending: tuple[str, ...]  # Uids of these pods that are not placed

    def sentences(self) -> list[str]:
        return [
            *self.double_placements,
            *self.overcommitted,
            *self.ledger_differences,
            *self.allocations,
            *self.unexplained,
        ]


class Audit:
    """Checks the invariants of the log event by event, independent of any service. One task owns an instance."""

    def __init__(self) -> None:
        self.events = 0
        self.by_type: dict[str, int] = {}
        self._nodes: dict[str, _Node] = {}
        self._requests: dict[str, Amounts] = {}
        self._names: dict[str, str] = {}
        self._submitted_at_ns: dict[str, int] = {}
        self._waits_ms: dict[str, float] = {}
        self._place: dict[str, str] = {}
        self._started: set[str] = set()
        self._doubles: list[str] = []
        self._over: list[str] = []
        self._over_nodes: set[str] = set()
        self._allocations: list[str] = []
        self._first_submitted_ns: int | None = None
        self._first_placed_ns: int | None = None

    @property
    def waits_ms(self) -> list[float]:
        """Real milliseconds from submission to first placement, for each placed pod, by the log's clock."""
        return list(self._waits_ms.values())

    @property
    def first_placement_ms(self) -> float:
        """Real milliseconds from the first submission to the first placement, or 0 if there was none."""
        if self._first_placed_ns is None or self._first_submitted_ns is None:
            return 0.0
        return (self._first_placed_ns - self._first_submitted_ns) / 1e6

    @property
    def requests_on_nodes(self) -> Amounts:
        """Sum of the requests of all pods that are placed now, by resource."""
        total: Amounts = {}
        for node in self._nodes.values():
            for name, amount in node.requested.items():
                total[name] = total.get(name, 0) + amount
        return total

    @property
    def allocatable(self) -> Amounts:
        """Resource -> sum over all nodes, including the latest batch resources."""
        total: Amounts = {}
        for node in self._nodes.values():
            batch = {BATCH_CPU: node.batch[-1][1], BATCH_MEMORY: node.batch[-1][2]} if node.batch else {}
            for name, amount in (*node.allocatable.items(), *batch.items()):
                total[name] = total.get(name, 0) + amount
        return total

    def gpu_use(self) -> GpuUse:
        """According to the nodes' ledgers."""
        holders: dict[tuple[str, int], int] = {}
        percent = pods = 0
        for token, node in self._nodes.items():
            for pod in node.ledger.values():
                cards = [device for device in pod.allocation.devices if device.type == "gpu"]
                pods += bool(cards)
                percent += sum(card.amounts.get(GPU_CORE, 0) for card in cards)
                for card in cards:
                    holders[token, card.minor] = holders.get((token, card.minor), 0) + 1
        offered = sum(node.devices[-1][1].get(GPU_CORE, 0) for node in self._nodes.values() if node.devices)
        return GpuUse(pods=pods, shared=sum(count > 1 for count in holders.values()), held=percent, offered=offered)

    def allocations(self) -> list[Allocation]:
        """Those of all pods in the nodes' ledgers; empty ones are left out."""
        pods = [pod for node in self._nodes.values() for pod in node.ledger.values()]
        return [pod.allocation for pod in pods if pod.allocation is not NOTHING]

    def name_of(self, uid: str) -> str:
        """`namespace/name` of a pod that was submitted, else its uid."""
        return self._names.get(uid, uid)

    def is_placed(self, uid: str) -> bool:
        return uid in self._place

    def live_pods(self) -> list[str]:
        """Uids of the pods that were submitted and not deleted."""
        return list(self._submitted_at_ns)

    def see(self, stored: StoredEvent, event: Event) -> None:
        """Check the next event of the stream of facts. Events must come in the order of the log."""
        self.events += 1
        name = type(event).__name__
        self.by_type[name] = self.by_type.get(name, 0) + 1
        uid = token = stored.ref.id
        match event:
            case objects.PodSpecAdded() | objects.PodSpecChanged():
                self._asks(uid, pod_requests(event.object))
                self._names[uid] = f"{event.object.metadata.namespace}/{event.object.metadata.name}"
                self._submitted_at_ns.setdefault(uid, stored.stored_at_ns)
                if self._first_submitted_ns is None:
                    self._first_submitted_ns = stored.stored_at_ns
            case objects.PodSpecDeleted():
                self._submitted_at_ns.pop(uid, None)
            case objects.NodeSpecAdded() | objects.NodeSpecChanged():
                self._node(token).allocatable = parse_amounts(event.object.status.allocatable)
            case objects.NodeSpecDeleted():
                self._node(token).allocatable = {}
            case CustomObjectObserved() if plural_of(stored.ref.id) == "noderesourcetopologies":
                self._node(token.partition("=")[2]).take_zones(event.object)
            case NodeOvercommitComputed():
                offer = (stored.seq, event.batch_cpu_milli or 0, event.batch_memory_bytes or 0)
                self._node(token).batch.append(offer)
            case NodeDevicesComputed():
                self._node(token).devices.append((stored.seq, event.resources))
            case PodPlaced():
                self._placed(stored, uid, event)
            case PodReleased():
                self._leave(uid)
            case NodeResourcesTaken():
                self._taken(token, event)
            case NodeResourcesReturned():
                for gone in event.pods:
                    self._node(token).ledger.pop(gone, None)
            case PodsStarted():
                self._started.update(event.pods)
            case _:
                pass

    def findings(self, explained: Mapping[str, str] | Iterable[str]) -> Findings:
        """Return the broken invariants in all events so far.

        Args:
            explained: Uids of the pods with at least one explanation.
        """
        known = set(explained)
        pending = tuple(uid for uid in self._submitted_at_ns if uid not in self._place)
        differences = [
            f"node {token}: the ledger and the pods' own events differ on {self.name_of(uid)}"
            for token, node in sorted(self._nodes.items())
            for uid in sorted(node.ledger.keys() ^ node.pods)
        ]
        return Findings(
            double_placements=tuple(self._doubles),
            overcommitted=tuple(self._over),
            overcommitted_nodes=len(self._over_nodes),
            ledger_differences=tuple(differences),
            allocations=tuple(self._allocations),
            unexplained=tuple(
                f"pod {self.name_of(uid)} is neither placed nor explained" for uid in pending if uid not in known
            ),
            submitted=len(self._submitted_at_ns),
            placed=sum(uid in self._place for uid in self._submitted_at_ns),
            started=len(self._started.intersection(self._place)),
            pending=pending,
        )

    def _asks(self, uid: str, requests: Amounts) -> None:
        """A pod requests these amounts from now on, also if it was placed before: it is resized on its node."""
        before = self._requests.get(uid, {})
        self._requests[uid] = requests
        token = self._place.get(uid)
        if token is not None:
            of_node = self._node(token).requested
            for name in {**before, **requests}:
                of_node[name] = of_node.get(name, 0) + requests.get(name, 0) - before.get(name, 0)

    def _placed(self, stored: StoredEvent, uid: str, event: PodPlaced) -> None:
        token = name_token(event.node)
        before = self._place.get(uid)
        if before is not None:
            self._doubles.append(f"pod {self.name_of(uid)} is placed on {event.node} while it is on {before}")
            self._leave(uid)
        submitted = self._submitted_at_ns.get(uid)
        if submitted is not None:
            self._waits_ms.setdefault(uid, (stored.stored_at_ns - submitted) / 1e6)
        if self._first_placed_ns is None:
            self._first_placed_ns = stored.stored_at_ns
        # What the pod itself asks for, not what the decision says it took.
        asked = self._requests.get(uid, event.requests)
        node = self._node(token)
        node.pods.add(uid)
        self._place[uid] = token
        for name, amount in asked.items():
            node.requested[name] = node.requested.get(name, 0) + amount
        since = min(event.explanation.based_on.ev, stored.seq)
        totals = {**{name: node.requested[name] for name in asked}, PODS: len(node.pods)}
        for name, total in totals.items():
            offered = node.offered(name, since)
            # A pod that asks for nothing of a resource is not held against a node that is over already.
            if total > offered and (name == PODS or asked[name] > 0):
                self._over_nodes.add(token)
                self._over.append(
                    f"node {event.node} offers {offered} of {name}; with pod {self.name_of(uid)} {total} are taken"
                )

    def _taken(self, token: str, event: NodeResourcesTaken) -> None:
        ledger = self._node(token).ledger
        for pod in event.pods:
            self._allocations += [
                f"node {name_from_token(token)}: {broken.sentence()}" for broken in objections(ledger, pod.uid, pod)
            ]
            ledger[pod.uid] = pod
        zones = [part.zone for pod in event.pods for part in pod.allocation.zones]
        if zones:
            name = name_from_token(token)
            self._allocations += [f"node {name}: {exceeded}" for exceeded in self._node(token).exceeded_zones(zones)]

    def _leave(self, uid: str) -> None:
        token = self._place.pop(uid, None)
        if token is None:
            return
        node = self._node(token)
        node.pods.discard(uid)
        for name, amount in self._requests.get(uid, {}).items():
            node.requested[name] = node.requested.get(name, 0) - amount

    def _node(self, token: str) -> _Node:
        return self._nodes.setdefault(token, _Node())
