"""The parts of the folded state from which room for waiting gangs is planned. Empty in a cluster without devices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordcore.events.envelope import name_from_token
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.migrations import RepackState

DEVICES: Final = "devices"
POD_GROUPS: Final = "podgroups"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInventory:
    """Devices, their use by pods, gangs, and plans to make room for gangs.

    The objects are decoded only if a gang waits.

    Attributes:
        devices: Name of a node -> its Device object.
        ledgers: Name of a node -> the pods and Reservations that hold its resources.
        groups: (namespace, name) -> PodGroup object.
        plans: Id of a plan -> its state. Plans that ended long ago are absent.
    """

    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    ledgers: Mapping[str, NodeLedger] = field(default_factory=dict[str, NodeLedger])
    groups: Mapping[tuple[str, str], Mapping[str, Any]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, Any]]
    )
    plans: Mapping[str, RepackState] = field(default_factory=dict[str, RepackState])


def gpu_inventory(
    state: ClusterState, devices: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]
) -> GpuInventory:
    """Return the inventory of a folded state: copies of its indexes, which later events do not change.

    Args:
        state: The folded state.
        devices: All Device objects.
        groups: All PodGroup objects.
    """
    by_node = {device["metadata"]["name"]: device for device in devices}
    if not by_node:
        return GpuInventory()
    return GpuInventory(
        devices=by_node,
        ledgers={name_from_token(token): ledger for token, ledger in state.of_kind(NodeLedger).items()},
        groups={(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in groups},
        plans=dict(state.of_kind(RepackState)),
    )
