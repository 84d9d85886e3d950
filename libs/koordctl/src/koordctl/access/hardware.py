"""The hardware of a node and the pods that hold parts of it."""

from collections.abc import Iterable

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.objects import custom_ref
from koordcore.events.pod import PodPlaced
from koordcore.ports.desired import DesiredStore
from koordcore.ports.eventlog import EventLog
from koordcore.state.aggregates import NodeLedger
from koordcore.stories.hardware import NodeHardware
from koordcore.values import codec

from koordctl.access.past import ask_as_of
from koordctl.explain.hardware_lines import gives_hardware, hardware_from_events


async def hardware_now(log: EventLog, store: DesiredStore, node: str) -> NodeHardware:
    """Return the CPUs, NUMA zones and devices of a node, with the pods that hold them now.

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
    """Return the CPUs, NUMA zones and devices of a node at a position of the log, without the pods that hold them."""

    async def events(ref: AggregateRef) -> Iterable[StoredEvent]:
        return [event for event in await log.read_aggregate(ref) if event.seq <= position]

    return hardware_from_events(
        node,
        spec=await events(AggregateRef("nodespec", name_token(node))),
        topology=await events(_topology(node)),
        device=await events(_device(node)),
    )


async def given_hardware(log: EventLog, placed: Iterable[StoredEvent]) -> dict[int, NodeHardware]:
    """Return the hardware of the node for each placement that gave the pod CPUs or devices, by position."""
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
