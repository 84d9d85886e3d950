"""The hardware of a node and the pods that hold parts of it, read from the log."""

from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.objects.custom import custom_ref
from koordcore.stories.hardware import NodeHardware

from koordctl.access.log import OpenLog
from koordctl.explain.hardware_lines import hardware_from_events


async def hardware_at(log: OpenLog, node: str, position: int | None) -> NodeHardware:
    """Return the CPUs, NUMA zones and devices of a node, and which pods hold them.

    Args:
        log: The log.
        node: Name of the node.
        position: Last position of the log to read; None reads up to the newest event.
    """

    async def events(ref: AggregateRef) -> list[StoredEvent]:
        found = await log.bus.events.read_aggregate(ref)
        return found if position is None else [event for event in found if event.seq <= position]

    return hardware_from_events(
        node,
        spec=await events(AggregateRef("nodespec", name_token(node))),
        topology=await events(custom_ref("noderesourcetopologies", "", node)),
        device=await events(custom_ref("devices", "", node)),
        ledger=await events(AggregateRef("node", name_token(node))),
    )
