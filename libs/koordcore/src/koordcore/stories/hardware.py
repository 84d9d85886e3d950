"""The hardware of a node as a tree, with the pods that hold it. Pure; for `koord explain node` and the dashboard.

    socket -> NUMA zone -> cores -> CPUs
                        -> PCIe switches -> GPUs, RDMA adapters, FPGAs

Its facts are the Node, NodeResourceTopology and Device objects and the ledger of the node. So the tree of a past
position needs the same four states as of that position.

Source: scheduler-fine-grained spec, 1.1, 1.2, 1.12, 2.1.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.annotations.cpu import (
    HIGHEST_ZONE,
    KubeletCpuManagerPolicy,
    node_cpu_bind_policy,
    parse_cpu_topology,
    parse_kubelet_cpu_manager_policy,
    parse_kubelet_cpus,
    parse_system_qos_resource,
)
from koordcore.protocol.annotations.node import NONE_RESERVED, parse_node_reservation, reported_reserved_cpus
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node, object_from_json
from koordcore.state.allocation_rules import violations
from koordcore.stories.device_cards import Card, cards_of
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import CPU, Amounts, parse_amounts
from koordcore.values.topology import CpuPlace, CpuTopology

UNKNOWN: Final = -1  # Id of the socket or zone of hardware whose place is not reported
_MOST_PROBLEMS: Final = 50

T = TypeVar("T")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that holds CPUs, NUMA amounts or devices of a node."""

    uid: str
    namespace: str
    name: str
    qos: str  # Koordinator QoS class
    cpuset: str = ""  # CPUs that only this pod may own, as a Linux CPU list; empty if none
    cpu_bind_policy: str = ""  # `FullPCPUs` or `SpreadByPCPUs`; empty without CPUs
    cpu_exclusive_policy: str = ""  # `PCPULevel` or `NUMANodeLevel`; empty if the pod requested none
    zones: dict[int, dict[str, int]] = {}  # NUMA zone -> resource -> amount that the pod takes there


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    id: int  # Id in the kernel
    # Uids of the pods that own the CPU; more than one is a conflict. If it has no owner, all pods that own no CPUs
    # share it.
    owners: tuple[str, ...] = ()
    reserved: str = ""  # Why pods cannot own it, one sentence; empty if they can

    @property
    def is_free(self) -> bool:
        """Whether a pod could own the CPU: it has no owner and is not reserved."""
        return not self.owners and not self.reserved


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """A physical core with its logical CPUs (hyper-threads). `id` is unique within the socket."""

    id: int
    cpus: tuple[Cpu, ...]

    @property
    def is_free(self) -> bool:
        """Whether a pod could own all CPUs of the core."""
        return all(cpu.is_free for cpu in self.cpus)


class ZoneAmount(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of one resource of a NUMA zone: milli-cores for `cpu`, whole units for everything else."""

    total: int  # Allocatable amount
    used: int  # Amount that pods with a NUMA policy take; of cpu, also the CPUs of the zone that other pods own


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A PCIe switch with the devices behind it. The id is empty if the switch of the devices is unknown."""

    id: str
    cards: tuple[Card, ...]


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node with its cores and devices."""

    id: int  # Id of the NUMA node; -1 for devices whose NUMA node is unknown
    cores: tuple[Core, ...] = ()  # Cores of the NUMA node in this socket, by id
    amounts: dict[str, ZoneAmount] = {}  # Resource name -> total and used; empty if the zone is not reported
    switches: tuple[Switch, ...] = ()  # PCIe switches by id
    cpus_free: int = 0  # Number of CPUs that a pod could own
    cores_free: int = 0  # Number of whole cores that a pod could own


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """A processor socket with its NUMA zones, by id. The socket with id -1 holds zones whose socket is unknown."""

    id: int
    zones: tuple[Zone, ...]


class NodeHardware(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of a node as a tree from socket to CPU and device, with the pods that hold parts of it."""

    node: str
    # CPU bind policy that the node's label or kubelet applies to every pod; "None" without one.
    cpu_bind_policy: str = "None"
    topology_policy: str = ""  # NUMA topology policy of the node; empty if none
    sockets: tuple[Socket, ...] = ()  # The tree, by id
    owners: tuple[Owner, ...] = ()  # Pods that hold a part of it, by namespace and name
    conflicts: tuple[str, ...] = ()  # One sentence for each CPU, device or virtual function that is held more than once
    # One sentence for each part of the objects that was ignored, with the reason; the first 50.
    problems: tuple[str, ...] = ()

    @property
    def zones(self) -> list[Zone]:
        """All NUMA zones, by socket and id."""
        return [zone for socket in self.sockets for zone in socket.zones]

    @property
    def cards(self) -> list[Card]:
        """All devices, in the order of socket, zone and PCIe switch."""
        return [card for zone in self.zones for switch in zone.switches for card in switch.cards]


def node_hardware(
    name: str,
    *,
    node: Node | None,
    topology: Mapping[str, Any] | None,
    device: Mapping[str, Any] | None,
    pods: Mapping[str, PodOnNode],
) -> NodeHardware:
    """Return the hardware of a node with its holders. Invalid parts of the objects are ignored and listed in
    `problems`.

    Args:
        node: The Node object; None if it was deleted.
        topology: The NodeResourceTopology as JSON; None if there is none.
        device: The Device object as JSON; None if there is none.
        pods: Uid -> entry of the pods in the node's ledger.
    """
    problems: list[str] = []
    reported = _topology(topology, problems)
    cards, ignored = cards_of(device, pods)
    problems += [f"Device: {error}" for error in ignored]
    own = node.metadata.annotations if node is not None else {}
    labels = node.metadata.labels if node is not None else {}
    annotations = reported.metadata.annotations
    written = annotations.get(keys.CPU_TOPOLOGY, "")
    places = _tried(lambda: parse_cpu_topology(written), (), f"[{keys.CPU_TOPOLOGY}]", problems)
    kubelet = _tried(lambda: parse_kubelet_cpu_manager_policy(annotations), KubeletCpuManagerPolicy(), "", problems)
    reserved = _reserved(places, annotations, own, kubelet, problems)
    policies = reported.topology_policies
    return NodeHardware(
        node=name,
        cpu_bind_policy=node_cpu_bind_policy(labels, kubelet),
        topology_policy=labels.get(keys.NUMA_TOPOLOGY_POLICY, "") or (policies[0] if policies else ""),
        sockets=_sockets(places, _cpus(places, reserved, pods), _amounts(reported, places, pods, problems), cards),
        owners=owners_of(pods),
        conflicts=tuple(_named(each.sentence(), each.holders, pods) for each in violations(pods)),
        problems=tuple(problems[:_MOST_PROBLEMS]),
    )


def _topology(raw: Mapping[str, Any] | None, problems: list[str]) -> NodeResourceTopology:
    try:
        return NodeResourceTopology() if raw is None else object_from_json(raw, NodeResourceTopology)
    except codec.DecodeError as error:
        problems.append(f"NodeResourceTopology: {error}")
        return NodeResourceTopology()


def _tried(read: Callable[[], T], otherwise: T, where: str, problems: list[str]) -> T:
    """Return what `read` returns; if the input is invalid, report it with its place and return `otherwise`."""
    try:
        return read()
    except InvalidInput as error:
        problems.append(f"NodeResourceTopology: {error.at(where)}")
        return otherwise


def _reserved(
    places: Sequence[CpuPlace],
    reported: Mapping[str, str],
    own: Mapping[str, str],
    kubelet: KubeletCpuManagerPolicy,
    problems: list[str],
) -> dict[int, str]:
    """Return CPU -> reason why pods never get this CPU (scheduler-fine-grained spec, 1.2)."""
    both = {key: reported.get(key) or own.get(key, "") for key in (keys.NODE_RESERVATION, keys.SYSTEM_QOS_RESOURCE)}
    given = {key: text for key, text in both.items() if text}
    system = _tried(lambda: parse_system_qos_resource(given), None, "", problems)
    reservation = _tried(lambda: parse_node_reservation(given), NONE_RESERVED, "", problems)
    node_reserved = reported_reserved_cpus(reservation, CpuTopology(tuple(places))) if places else ""
    of_kubelet = _tried(lambda: parse_kubelet_cpus(reported), [], f"[{keys.POD_CPU_ALLOCS}]", problems)
    lists = [
        (f"kubelet gave it to {each.namespace}/{each.name}", each.cpuset)
        for each in of_kubelet
        if each.managed_by_kubelet and each.uid
    ]
    lists += [("reserved by the kubelet", kubelet.reserved_cpus), ("reserved on the node", node_reserved)]
    if system is not None and system.exclusive:
        lists.append(("reserved for system QoS", system.cpuset))
    known = {place.cpu for place in places}
    reasons: dict[int, str] = {}
    for reason, text in lists:
        for cpu in _tried(lambda text=text: parse_cpuset(text), EMPTY, f"{reason}: cpuset", problems) & known:
            reasons.setdefault(cpu, reason)
    return reasons


def _cpus(places: Sequence[CpuPlace], reserved: Mapping[int, str], pods: Mapping[str, PodOnNode]) -> dict[int, Cpu]:
    owners: defaultdict[int, list[str]] = defaultdict(list)
    for uid in sorted(pods):
        if pods[uid].allocation.cpuset:
            for cpu in pods[uid].allocation.cpus:
                owners[cpu].append(uid)
    return {
        place.cpu: Cpu(id=place.cpu, owners=tuple(owners.get(place.cpu, ())), reserved=reserved.get(place.cpu, ""))
        for place in places
    }


def _amounts(
    topology: NodeResourceTopology,
    places: Sequence[CpuPlace],
    pods: Mapping[str, PodOnNode],
    problems: list[str],
) -> dict[int, dict[str, ZoneAmount]]:
    """Return zone -> resource -> total and used."""
    totals: dict[int, Amounts] = {}
    for index, zone in enumerate(topology.zones):
        id_ = zone.id
        if zone.type != "Node" or id_ is None or id_ > HIGHEST_ZONE or zone.name != f"node-{id_}":
            problems.append(
                f"NodeResourceTopology: zones[{index}]: must be of type Node and named node-<N> with N from 0 to "
                f"{HIGHEST_ZONE}, got {zone.name[:60]!r}"
            )
            continue
        listed = {each.name: each.allocatable for each in zone.resources}
        totals[id_] = _tried(lambda listed=listed: parse_amounts(listed), {}, f"zones[{index}].resources", problems)
    used: defaultdict[int, Amounts] = defaultdict(dict)
    zone_of = {place.cpu: place.node for place in places}
    for pod in pods.values():
        owned = pod.allocation.cpus if pod.allocation.cpuset and not pod.allocation.zones else EMPTY
        for zone in (zone_of[cpu] for cpu in owned if cpu in zone_of):
            used[zone][CPU] = used[zone].get(CPU, 0) + 1000
        for part in pod.allocation.zones:
            for name, amount in part.amounts.items():
                used[part.zone][name] = used[part.zone].get(name, 0) + amount
    return {
        zone: {
            name: ZoneAmount(total=totals.get(zone, {}).get(name, 0), used=used.get(zone, {}).get(name, 0))
            for name in sorted({*totals.get(zone, {}), *used.get(zone, {})})
        }
        for zone in {*totals, *used}
    }


def _sockets(
    places: Sequence[CpuPlace],
    cpus: Mapping[int, Cpu],
    amounts: Mapping[int, dict[str, ZoneAmount]],
    cards: Sequence[Card],
) -> tuple[Socket, ...]:
    """Return the tree. A zone that no CPU and no device places in a socket stands under the unknown socket."""
    cores: defaultdict[tuple[int, int], defaultdict[int, list[Cpu]]] = defaultdict(lambda: defaultdict(list))
    home: dict[int, int] = {}
    for place in places:
        home.setdefault(place.node, place.socket)
        cores[place.socket, place.node][place.core].append(cpus[place.cpu])
    for card in cards:
        if card.zone != UNKNOWN and card.socket != UNKNOWN:
            home.setdefault(card.zone, card.socket)
    switches: defaultdict[int, defaultdict[str, list[Card]]] = defaultdict(lambda: defaultdict(list))
    for card in cards:
        switches[card.zone][card.switch].append(card)
    keys_ = {*cores, *((home.get(zone, UNKNOWN), zone) for zone in (*amounts, *switches))}
    by_socket: defaultdict[int, list[Zone]] = defaultdict(list)
    for socket, zone in sorted(keys_, key=lambda key: (key[0] == UNKNOWN, key[0], key[1] == UNKNOWN, key[1])):
        is_home = home.get(zone, UNKNOWN) == socket
        of_zone: Mapping[int, Sequence[Cpu]] = cores.get((socket, zone)) or {}
        found = tuple(Core(id=core & 0xFFFF, cpus=tuple(of_zone[core])) for core in sorted(of_zone))
        by_socket[socket].append(
            Zone(
                id=zone,
                cores=found,
                amounts=amounts.get(zone, {}) if is_home else {},
                switches=_switches(switches.get(zone) or {}) if is_home else (),
                cpus_free=sum(cpu.is_free for core in found for cpu in core.cpus),
                cores_free=sum(core.is_free for core in found),
            )
        )
    return tuple(Socket(id=socket, zones=tuple(zones)) for socket, zones in by_socket.items())


def _switches(found: Mapping[str, Sequence[Card]]) -> tuple[Switch, ...]:
    return tuple(
        Switch(id=id_, cards=tuple(sorted(found[id_], key=lambda card: (card.type, card.minor))))
        for id_ in sorted(found)
    )


def owners_of(pods: Mapping[str, PodOnNode]) -> tuple[Owner, ...]:
    """Return the pods of a ledger that hold CPUs, NUMA amounts or devices, by namespace and name."""
    owners = [
        Owner(
            uid=uid,
            namespace=pod.namespace,
            name=pod.name,
            qos=pod.qos,
            cpuset=pod.allocation.cpuset,
            cpu_bind_policy=pod.allocation.cpu_bind_policy,
            cpu_exclusive_policy=pod.allocation.cpu_exclusive_policy,
            zones={zone.zone: zone.amounts for zone in pod.allocation.zones},
        )
        for uid, pod in pods.items()
        if pod.allocation.cpuset or pod.allocation.zones or pod.allocation.devices
    ]
    return tuple(sorted(owners, key=lambda owner: (owner.namespace, owner.name, owner.uid)))


def _named(sentence: str, holders: Iterable[str], pods: Mapping[str, PodOnNode]) -> str:
    for uid in holders:
        if uid in pods:
            sentence = sentence.replace(uid, f"{pods[uid].namespace}/{pods[uid].name}")
    return sentence
