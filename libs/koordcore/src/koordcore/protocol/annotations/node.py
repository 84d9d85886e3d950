"""Node annotations with amounts: network bandwidth, and overcommitted resources that third parties use."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.values.quantity import Quantity, parse_quantity
from koordcore.values.resources import ResourceList, add, parse_resources


def parse_network_bandwidth(annotations: Mapping[str, str]) -> Quantity | None:
    """Return the network bandwidth of a node in bits per second; None without its annotation `network-bandwidth`.

    Raises:
        InvalidInput: The text is not a quantity. The system section of the node is then unset.

    Source:
        protocol spec, 4.4
    """
    return parse_present(annotations, keys.NETWORK_BANDWIDTH, parse_quantity)


class _Allocation(msgspec.Struct):
    name: str = ""
    priority: str = ""
    resources: dict[str, str | int | float | None] = {}


class _Allocations(msgspec.Struct):
    allocations: list[_Allocation] = []


def parse_third_party_allocated(annotations: Mapping[str, str], priority: str) -> ResourceList:
    """Return the batch or mid resources of a node that pods of other schedulers hold.

    The annotation `node.koordinator.sh/thirdPartyAllocations` of the node lists them; empty without it.

    Args:
        annotations: Annotations of the node.
        priority: Priority class, for example "koord-batch".

    Raises:
        InvalidInput: The annotation is not valid JSON, or a quantity in any entry is invalid.

    Source:
        protocol spec, 4.4
    """

    def total(text: str) -> ResourceList:
        entries = lenient_json.decode(text, _Allocations).allocations
        parsed = [(entry.priority, parse_resources(entry.resources)) for entry in entries]
        return add(*(resources for name, resources in parsed if name == priority))

    return parse_present(annotations, keys.THIRD_PARTY_ALLOCATIONS, total) or {}
