"""Which nodes were deleted, and whether a decision is about the present node or about an earlier one of its name.

The scheduler forgets the decisions about a node with the node. The folded state keeps them. So a decision about a node
that returned is published again even if it equals the one of its earlier life. All answers follow from the folded
state, so they are the same after a start from a snapshot.

`topology_of_agent` converts the topology that our agent reports.
"""

from typing import Final

from koordcore.events.envelope import Event
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeHealthAssessed, NodeOvercommitComputed
from koordcore.events.nodestate import NodeTopologyReported
from koordcore.protocol import resource_names as names
from koordcore.protocol.hardware.node_topology import NodeResourceTopology, Zone, ZoneResource
from koordcore.protocol.objects import ObjectMeta
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodePolicyState, NodeSpecState
from koordcore.values.resources import quantity_of

GPU_RESOURCES: Final = (
    names.GPU,
    names.GPU_CORE,
    names.GPU_MEMORY,
    names.GPU_MEMORY_RATIO,
    names.GPU_SHARED,
    names.HUAWEI_NPU_CORE,
    names.HUAWEI_NPU_CPU,
    names.HUAWEI_NPU_DVPP,
)
"""Resources that a node has of its GPUs and other accelerators."""


def is_deleted(state: ClusterState, token: str) -> bool:
    """Return whether a node was deleted, and has not returned.

    False for a node about which the manager never published anything, because it may only be unknown yet.
    """
    return token not in state.of_kind(NodeSpecState) and token in state.of_kind(NodePolicyState)


def is_told(state: ClusterState, token: str, published: NodePolicyState | None, decision: type[Event]) -> bool:
    """Return whether the last decision of a kind about a node was made in the present life of the node.

    True also if no such decision was made, or the node does not exist.

    Args:
        decision: `NodeOvercommitComputed`, `NodeDevicesComputed` or `NodeHealthAssessed`.
    """
    spec, seq = state.of_kind(NodeSpecState).get(token), _decided_at(published, decision)
    return seq == 0 or spec is None or seq >= spec.added_seq


def _decided_at(published: NodePolicyState | None, decision: type[Event]) -> int:
    if published is None:
        return 0
    if decision is NodeOvercommitComputed:
        return published.overcommit_seq
    if decision is NodeDevicesComputed:
        return published.devices_seq
    assert decision is NodeHealthAssessed, f"the position of {decision.__name__} is not kept"
    return published.health_seq


def topology_of_agent(report: NodeTopologyReported) -> NodeResourceTopology:
    """Convert the CPUs and NUMA zones that our agent reported to a typed NodeResourceTopology."""
    return NodeResourceTopology(
        metadata=ObjectMeta(annotations=report.annotations),
        zones=[
            Zone(
                name=zone.name,
                type="Node",
                resources=[
                    ZoneResource(
                        name=name,
                        capacity=_text(name, zone.capacity.get(name, amount)),
                        allocatable=_text(name, amount),
                        available=_text(name, amount),
                    )
                    for name, amount in sorted(zone.allocatable.items())
                ],
            )
            for zone in report.zones
        ],
    )


def _text(name: str, amount: int) -> str:
    return quantity_of(name, amount).canonical()
