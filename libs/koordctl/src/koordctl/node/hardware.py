"""The hardware of a node with the pods that hold it: what is asked, and its lines.

Source: scheduler-fine-grained spec, 1.1, 1.12, 2.1.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.objects import custom_ref
from koordcore.events.pod import PodPlaced
from koordcore.ports.desired import DesiredStore
from koordcore.ports.eventlog import EventLog
from koordcore.state.aggregates import CustomObjectState, NodeLedger, NodeSpecState
from koordcore.state.cluster import evolve
from koordcore.state.fold import AggregateState
from koordcore.stories.device_cards import Card
from koordcore.stories.hardware import UNKNOWN, Core, Cpu, NodeHardware, Owner, Zone, node_hardware
from koordcore.values import codec
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import format_cpuset

from koordctl.access.past import ask_as_of
from koordctl.render.units import amount_text, amounts_text

SHARED_POOL = "shared pools"
_DOMAIN = "koordinator.sh/"


def hardware_from_events(
    name: str,
    *,
    spec: Iterable[StoredEvent],
    topology: Iterable[StoredEvent],
    device: Iterable[StoredEvent],
    ledger: Iterable[StoredEvent] = (),
    before: NodeLedger | None = None,
) -> NodeHardware:
    """Return the hardware of a node and its holders, from the events of four aggregates, each in order.

    Of the first three, the newest event is enough.

    Args:
        spec: Of the node object.
        topology: Of its NodeResourceTopology.
        device: Of its Device object.
        ledger: Of its ledger, which tells what pods hold.
        before: The ledger before these events; None if they begin with its first one.
    """
    spec_state, ledger_state = _folded(spec), _folded(ledger, before)
    return node_hardware(
        name,
        node=spec_state.object if isinstance(spec_state, NodeSpecState) else None,
        topology=_object(_folded(topology)),
        device=_object(_folded(device)),
        pods=ledger_state.pods if isinstance(ledger_state, NodeLedger) else {},
    )


def hardware_lines(hardware: NodeHardware) -> Iterator[str]:
    """A tree: sockets, NUMA zones with amounts, CPUs and their holders, PCIe switches with devices.

    Conflicts and problems follow at the end.
    """
    names = _names(hardware.owners)
    cores = [core for zone in hardware.zones for core in zone.cores]
    if cores:
        free = sum(zone.cores_free for zone in hardware.zones)
        cpus = sum(len(core.cpus) for core in cores)
        sizes = f"{_counted(len(cores), 'core')}, {_counted(cpus, 'CPU')}, {_counted(free, 'whole core')} free"
        yield f"{sizes}{_policies(hardware)}"
    for socket in hardware.sockets:
        yield "place not reported" if socket.id == UNKNOWN else f"socket {socket.id}"
        for zone in socket.zones:
            yield from (f"  {line}" for line in _zone_lines(zone, names))
    yield from (_owner_line(owner, hardware.cards) for owner in hardware.owners)
    yield from (f"conflict: {sentence}" for sentence in hardware.conflicts)
    yield from (f"ignored: {sentence}" for sentence in hardware.problems)


def gives_hardware(allocation: Allocation) -> bool:
    """Whether an allocation contains CPUs, NUMA zones or devices."""
    return bool(allocation.cpuset or allocation.zones or allocation.devices)


def chosen_lines(allocation: Allocation, hardware: NodeHardware) -> Iterator[str]:
    """The CPUs, zones and devices that a pod was given, with their place in the node when it was placed."""
    if allocation.cpuset:
        given = allocation.cpus
        policy = ", ".join(filter(None, (allocation.cpu_bind_policy, allocation.cpu_exclusive_policy)))
        places = "; ".join(_cores_text(zone, given) for zone in hardware.zones if _touches(zone, given))
        yield f"CPUs {allocation.cpuset}{f' ({policy})' if policy else ''}{f': {places}' if places else ''}"
    for zone in allocation.zones:
        yield f"zone {zone.zone}: {amounts_text(zone.amounts)}"
    cards = {(card.type, card.minor): card for card in hardware.cards}
    for device in allocation.devices:
        card = cards.get((device.type, device.minor))
        place = _place(card) if card is not None else ""
        functions = ", ".join(function.bus_id for function in device.virtual_functions)
        with_functions = f", virtual functions {functions}" if functions else ""
        id_ = f" {device.id}" if device.id else ""
        template = f", template {device.template}" if device.template else ""
        amounts = amounts_text({name.removeprefix(_DOMAIN): amount for name, amount in device.amounts.items()})
        yield f"{device.type} {device.minor}{id_}{place}: {amounts}{with_functions}{template}"


def _folded(events: Iterable[StoredEvent], state: AggregateState | None = None) -> AggregateState | None:
    for stored in events:
        event = CATALOGUE.read(stored)
        state = state if event is None else evolve(state, event, stored)
    return state


def _object(state: AggregateState | None) -> Mapping[str, object] | None:
    return state.object if isinstance(state, CustomObjectState) else None


def _names(owners: Iterable[Owner]) -> dict[str, str]:
    return {owner.uid: f"{owner.namespace}/{owner.name}" for owner in owners}


def _policies(hardware: NodeHardware) -> str:
    bind = "" if hardware.cpu_bind_policy == "None" else f", every pod binds {hardware.cpu_bind_policy}"
    policy = hardware.topology_policy
    return bind + ("" if policy in ("", "None") else f", topology policy {policy}")


def _zone_lines(zone: Zone, names: Mapping[str, str]) -> Iterator[str]:
    if zone.id != UNKNOWN:
        free = f": {zone.cores_free} of {len(zone.cores)} cores free" if zone.cores else ""
        amounts = "".join(
            f", {name} {amount_text(name, amount.used)} of {amount_text(name, amount.total)} given"
            for name, amount in zone.amounts.items()
            if amount.total or amount.used
        )
        yield f"zone {zone.id}{free or ':'}{amounts if free else amounts[1:]}"
    by_state: defaultdict[str, list[int]] = defaultdict(list)
    for core in zone.cores:
        for cpu in core.cpus:
            by_state[_cpu_text(cpu, names)].append(cpu.id)
    for state, cpus in sorted(by_state.items(), key=lambda entry: min(entry[1])):
        yield f"  CPUs {format_cpuset(cpus)}  {state}"
    for switch in zone.switches:
        if switch.id:
            yield f"  switch {switch.id}"
        for card in switch.cards:
            yield f"  {'  ' if switch.id else ''}{_card_line(card, names)}"


def _cpu_text(cpu: Cpu, names: Mapping[str, str]) -> str:
    held = " and ".join(names.get(uid, uid) for uid in cpu.owners)
    if cpu.reserved:
        return f"{cpu.reserved}, held by {held}" if held else cpu.reserved
    return held or SHARED_POOL


def _card_line(card: Card, names: Mapping[str, str]) -> str:
    id_ = f" {card.id}" if card.id else ""
    functions = ""
    if card.functions:
        held = sum(bool(function.owners) for function in card.functions)
        functions = f", {held} of {len(card.functions)} virtual functions given"
    state = "" if card.state == "healthy" else f" {card.state}"
    shares = ", ".join(f"{names.get(share.uid, share.uid)} {share.percent}%" for share in card.shares)
    given = f"{card.percent_used}% given" if shares else "free" if card.state == "healthy" else "unused"
    return f"{card.type} {card.minor}{id_}{state}: {given}{f' ({shares})' if shares else ''}{functions}"


def _owner_line(owner: Owner, cards: Iterable[Card]) -> str:
    parts: list[str] = []
    if owner.cpuset:
        policy = ", ".join(filter(None, (owner.cpu_bind_policy, owner.cpu_exclusive_policy)))
        parts.append(f"CPUs {owner.cpuset}{f' ({policy})' if policy else ''}")
    parts += [f"zone {zone}: {amounts_text(amounts)}" for zone, amounts in sorted(owner.zones.items())]
    held = [(card, share) for card in cards for share in card.shares if share.uid == owner.uid]
    parts += [f"{card.type} {card.minor} {share.percent}%" for card, share in held]
    return f"{owner.namespace}/{owner.name} ({owner.qos}) holds {'; '.join(parts)}"


def _touches(zone: Zone, given: frozenset[int]) -> bool:
    return any(cpu.id in given for core in zone.cores for cpu in core.cpus)


def _cores_text(zone: Zone, given: frozenset[int]) -> str:
    """The CPUs of a zone that a pod was given, such as `2 whole cores and 1 CPU of other cores in zone 0`."""
    whole = sum(all(cpu.id in given for cpu in core.cpus) for core in zone.cores)
    single = sum(_part(core, given) for core in zone.cores)
    parts = [_counted(whole, "whole core")] if whole else []
    parts += [f"{_counted(single, 'CPU')} of other cores"] if single else []
    return f"{' and '.join(parts)} in zone {zone.id}"


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _part(core: Core, given: frozenset[int]) -> int:
    """The number of given CPUs of a core that was not given as a whole."""
    found = sum(cpu.id in given for cpu in core.cpus)
    return 0 if found == len(core.cpus) else found


def _place(card: Card) -> str:
    parts = [f"switch {card.switch}"] if card.switch else []
    parts += [f"zone {card.zone}"] if card.zone != UNKNOWN else []
    return f" ({', '.join(parts)})" if parts else ""


async def hardware_now(log: EventLog, store: DesiredStore, node: str) -> NodeHardware:
    """Return the hardware of a node, with the pods that hold it now.

    The ledger of the node is not read from its beginning: the node's desired state contains it up to a position.
    """
    token = name_token(node)
    desired = await store.get(node)
    before: NodeLedger | None = None
    if desired is not None and "node" in desired.as_of:
        before = NodeLedger(seq=desired.as_of["node"], pods={pod.uid: pod for pod in desired.pods})
    refs = (AggregateRef("nodespec", token), _topology(node), _device(node))
    newest = [await log.last_of(ref) for ref in refs]
    spec, topology, device = [[] if stored is None else [stored] for stored in newest]
    since = 0 if before is None else before.seq
    ledger = await log.read_aggregate(AggregateRef("node", token), after=since)
    return hardware_from_events(node, spec=spec, topology=topology, device=device, ledger=ledger, before=before)


async def layout_at(log: EventLog, node: str, position: int) -> NodeHardware:
    """Return the hardware of a node at a position of the log, without the pods that hold it."""

    async def events(ref: AggregateRef) -> Iterable[StoredEvent]:
        return [event for event in await log.read_aggregate(ref) if event.seq <= position]

    return hardware_from_events(
        node,
        spec=await events(AggregateRef("nodespec", name_token(node))),
        topology=await events(_topology(node)),
        device=await events(_device(node)),
    )


async def given_hardware(log: EventLog, placed: Iterable[StoredEvent]) -> dict[int, NodeHardware]:
    """Return by position the hardware of the node for each placement that gave the pod CPUs or devices."""
    found: dict[int, NodeHardware] = {}
    for stored in placed:
        event = CATALOGUE.read(stored)
        if isinstance(event, PodPlaced) and gives_hardware(event.allocation):
            found[stored.seq] = await layout_at(log, event.node, stored.seq)
    return found


def past_hardware(node: str, position: int) -> NodeHardware | None:
    """Return the hardware of a node and its holders at a position of the log, from the projector; None if unknown."""
    answer = ask_as_of(f"/api/nodes/{node}/hardware", str(position))
    return None if answer is None else codec.convert(answer["hardware"], NodeHardware)


def _topology(node: str) -> AggregateRef:
    return custom_ref("noderesourcetopologies", "", node)


def _device(node: str) -> AggregateRef:
    return custom_ref("devices", "", node)
