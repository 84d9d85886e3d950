"""What is owed to a node's devices: what healthy ones name, and the removal of what is gone."""

from koord_manager.domain.gateway.node_writes import wanted_resources
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.nodepolicy import NodeDevicesComputed
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.cluster import evolve
from support.histories.recording import stored


def decided(*events: NodeDevicesComputed) -> NodePolicyState:
    state = None
    for seq, event in enumerate(events, 1):
        state = evolve(state, event, stored(seq, Draft(AggregateRef("nodepolicy", "n"), event, seq - 1)))
    assert isinstance(state, NodePolicyState)
    return state


def test_what_healthy_gpus_do_not_name_is_left_as_it_is() -> None:
    wanted = wanted_resources(decided(NodeDevicesComputed(resources={"koordinator.sh/gpu-core": 100}, labels={})))
    assert wanted == {"koordinator.sh/gpu-core": 100, "koordinator.sh/rdma": None}


def test_without_a_healthy_gpu_all_gpu_resources_go_also_from_a_node_without_labels() -> None:
    there = NodeDevicesComputed(resources={"koordinator.sh/gpu-core": 100}, labels={})
    wanted = wanted_resources(decided(there, NodeDevicesComputed(resources={}, labels={})))
    assert wanted["koordinator.sh/gpu-core"] is None
    assert wanted["koordinator.sh/gpu.shared"] is None


def test_a_node_whose_devices_nobody_ever_reported_is_left_alone() -> None:
    assert wanted_resources(NodePolicyState(seq=1)) == {}
