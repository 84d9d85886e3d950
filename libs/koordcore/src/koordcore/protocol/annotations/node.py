"""Node annotations about amounts: network bandwidth, and what third parties hold of the overcommitted resources."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.values.quantity import Quantity, parse_quantity
from koordcore.values.resources import ResourceList, add, parse_resources


def parse_network_bandwidth(annotations: Mapping[str, str]) -> Quantity | None:
    """Return total bandwidth in bits per second, None when the node does not say.

    Raises:
        InvalidInput: What is no quantity: the system section of the node is then left unset.

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
    """Return the resources of one priority class that other systems use; empty if there are none.

    Raises:
        InvalidInput: Malformed JSON or quantities, in any entry.

    Source:
        protocol spec, 4.4
    """

    def total(text: str) -> ResourceList:
        entries = lenient_json.decode(text, _Allocations).allocations
        parsed = [(entry.priority, parse_resources(entry.resources)) for entry in entries]
        return add(*(resources for name, resources in parsed if name == priority))

    return parse_present(annotations, keys.THIRD_PARTY_ALLOCATIONS, total) or {}
