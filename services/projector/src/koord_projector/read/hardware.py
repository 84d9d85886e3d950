"""The hardware of nodes as of a moment, with the pods that hold it."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from koordcore.events.envelope import AggregateRef, name_from_token, name_token
from koordcore.events.objects import custom_ref
from koordcore.state.aggregates import CustomObjectState, NodeLedger, NodeSpecState
from koordcore.state.fold import AggregateState
from koordcore.stories.device_cards import Card, cards_of
from koordcore.stories.hardware import NodeHardware, Owner, node_hardware, owners_of

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import Moment, ids_with_prefix, states_at
from koord_projector.read.nodes import NodeQuery

_DEVICES = "devices="


class HardwareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of one node at one moment, from sockets to devices, with the pods that hold it."""

    moment: Moment
    hardware: NodeHardware


async def read_hardware(reading: Reading, query: NodeQuery) -> HardwareAnswer | None:
    connection, moment, name = reading.connection, reading.moment, query.name
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


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node, with the pods that hold them.

    Attributes:
        cards: The devices.
        owners: Pods that hold a part of them.
        problems: One sentence for each entry of the Device object that was ignored.
    """

    node: str
    cards: list[Card]
    owners: list[Owner]
    problems: list[str]


class DevicesQuery(Query, frozen=True, kw_only=True):
    after: Annotated[Text, about("Only nodes after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Nodes per page.")] = 200
    at: At = ""


class DevicesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of nodes with devices at one moment, by name.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    nodes: list[NodeDevices]
    after: str | None


async def read_devices(reading: Reading, query: DevicesQuery) -> DevicesAnswer:
    """Nodes come in the order of subject tokens."""
    connection, moment, after, limit = reading.connection, reading.moment, query.after, query.limit
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
