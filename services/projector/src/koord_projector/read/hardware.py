"""The hardware of nodes as of a moment, with the pods that hold it."""

from collections.abc import Mapping

from koordcore.events.envelope import AggregateRef, name_from_token, name_token
from koordcore.events.objects import custom_ref
from koordcore.state.aggregates import CustomObjectState, NodeLedger, NodeSpecState
from koordcore.state.fold import AggregateState
from koordcore.stories.device_cards import cards_of
from koordcore.stories.hardware import node_hardware, owners_of
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.answers import DevicesAnswer, HardwareAnswer, NodeDevices
from koord_projector.read.moments import Moment
from koord_projector.read.objects import ids_with_prefix, states_at

_DEVICES = "devices="


async def describe_hardware(connection: AsyncConnection, moment: Moment, name: str) -> HardwareAnswer | None:
    """Return the hardware of one node; None if the node does not exist at the moment."""
    token = name_token(name)
    topology, device = custom_ref("noderesourcetopologies", "", name).id, custom_ref("devices", "", name).id
    spec = (await states_at(connection, moment, "nodespec", [token])).get(token)
    if not isinstance(spec, NodeSpecState):
        return None
    custom = await states_at(connection, moment, "customspec", [topology, device])
    ledger = (await states_at(connection, moment, "node", [token])).get(token)
    hardware = node_hardware(
        name,
        node=spec.object,
        topology=_object(custom.get(topology)),
        device=_object(custom.get(device)),
        pods=ledger.pods if isinstance(ledger, NodeLedger) else {},
    )
    return HardwareAnswer(moment=moment, hardware=hardware)


async def list_devices(connection: AsyncConnection, moment: Moment, *, after: str, limit: int) -> DevicesAnswer:
    """Return a page of nodes that have a Device object, with their devices and the pods that hold them.

    Args:
        connection: Read transaction.
        moment: The moment.
        after: Name of a node; only nodes after it, in the order of subject tokens. "": from the first one.
        limit: Largest number of nodes.
    """
    last = f"{_DEVICES}{name_token(after)}" if after else _DEVICES
    ids = await ids_with_prefix(connection, moment, AggregateRef("customspec", _DEVICES), after=last, limit=limit)
    documents = await states_at(connection, moment, "customspec", ids)
    ledgers = await states_at(connection, moment, "node", [id_.removeprefix(_DEVICES) for id_ in ids])
    nodes = [_devices(id_.removeprefix(_DEVICES), documents.get(id_), ledgers) for id_ in ids]
    return DevicesAnswer(
        moment=moment,
        nodes=[node for node in nodes if node is not None],
        after=name_from_token(ids[-1].removeprefix(_DEVICES)) if len(ids) == limit else None,
    )


def _devices(token: str, document: AggregateState | None, ledgers: Mapping[str, AggregateState]) -> NodeDevices | None:
    found = _object(document)
    ledger = ledgers.get(token)
    if found is None:
        return None
    pods = ledger.pods if isinstance(ledger, NodeLedger) else {}
    cards, ignored = cards_of(found, pods)
    owners = [owner for owner in owners_of(pods) if pods[owner.uid].allocation.devices]
    return NodeDevices(
        node=name_from_token(token), cards=cards, owners=owners, problems=[str(error) for error in ignored]
    )


def _object(state: AggregateState | None) -> Mapping[str, object] | None:
    return state.object if isinstance(state, CustomObjectState) else None
