"""The hardware of a node as a tree with its holders."""

import json
from typing import Any

import pytest
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.hardware.node_topology import Zone
from koordcore.protocol.objects import Node, ObjectMeta
from koordcore.stories.device_cards import cards_of, gpu_totals
from koordcore.stories.hardware import UNKNOWN, NodeHardware, node_hardware
from koordcore.values.allocation import NOTHING, AllocatedDevice, Allocation, VirtualFunction, ZoneAmounts
from support.hardware import GPU_MEMORY, device_document, topology_document

RATIO = "koordinator.sh/gpu-memory-ratio"


def pod(uid: str, allocation: Allocation = NOTHING, qos: str = "LSR") -> PodOnNode:
    return PodOnNode(
        uid=uid,
        namespace="shop",
        name=uid,
        requests={},
        qos=qos,
        kube_qos="Guaranteed",
        priority_class="koord-prod",
        allocation=allocation,
    )


def hardware(
    *pods: PodOnNode,
    topology: dict[str, Any] | None = None,
    device: dict[str, Any] | None = None,
    node: Node | None = None,
) -> NodeHardware:
    return node_hardware("n1", node=node, topology=topology, device=device, pods={each.uid: each for each in pods})


def test_cores_hang_below_their_zone_and_socket_with_their_owner() -> None:
    web = pod("web", Allocation(cpuset="0,8", cpu_bind_policy="FullPCPUs", zones=(ZoneAmounts(0, {"cpu": 2000}),)))
    found = hardware(web, topology=topology_document("n1"))
    assert [(socket.id, [zone.id for zone in socket.zones]) for socket in found.sockets] == [(0, [0]), (1, [1])]
    zone = found.zones[0]
    assert [[cpu.id for cpu in core.cpus] for core in zone.cores] == [[0, 8], [1, 9], [2, 10], [3, 11]]
    assert [cpu.owners for cpu in zone.cores[0].cpus] == [("web",), ("web",)]
    assert (zone.cores_free, zone.cpus_free) == (3, 6)
    assert (zone.amounts["cpu"].used, zone.amounts["cpu"].total) == (2000, 8000)
    assert [(owner.name, owner.cpuset) for owner in found.owners] == [("web", "0,8")]


def test_owned_cpus_count_in_their_zones_even_if_the_pod_has_no_numa_policy() -> None:
    found = hardware(pod("web", Allocation(cpuset="0-1,8-9,4")), topology=topology_document("n1"))
    assert [zone.amounts["cpu"].used for zone in found.zones] == [4000, 1000]


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000 + "1" + "0" * 10])
def test_a_zone_number_of_thousands_of_digits_is_refused_and_the_other_zones_stay(number: str) -> None:
    document = topology_document("n1")
    document["zones"].append({"name": f"node-{number}", "type": "Node", "resources": []})

    found = hardware(topology=document)

    rule = "must be of type Node and named node-<N> with N from 0 to 63"
    assert found.problems == (f"NodeResourceTopology: zones[2]: {rule}, got {f'node-{number}'[:60]!r}",)
    assert [zone.amounts["cpu"].total for zone in found.zones] == [8000, 8000]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("node-0", 0),
        ("rack-7-node-12", 12),
        ("node-" + "0" * 5000 + "3", 3),
        ("node-2147483647", 2147483647),
        ("node-2147483648", None),
        ("node-" + "9" * 5000, None),
        ("node-", None),
    ],
    ids=["zero", "last part", "zeros", "highest", "too high", "many digits", "no digits"],
)
def test_the_number_of_a_zone_is_an_int32_after_the_last_hyphen(name: str, number: int | None) -> None:
    assert Zone(name=name).id == number


def test_core_ids_that_repeat_between_sockets_stay_apart() -> None:
    found = hardware(topology=topology_document("n1", sockets=2, zones_per_socket=2, cores=3))
    assert [len(zone.cores) for zone in found.zones] == [3, 3, 3, 3]
    assert {core.id for zone in found.sockets[0].zones for core in zone.cores} == {0, 1, 2, 3, 4, 5}
    assert {core.id for zone in found.sockets[1].zones for core in zone.cores} == {0, 1, 2, 3, 4, 5}


def test_reserved_cpus_state_their_reason_and_are_not_free() -> None:
    annotations = {
        keys.KUBELET_CPU_MANAGER_POLICY: json.dumps({"policy": "static", "reservedCPUs": "0"}),
        keys.NODE_RESERVATION: json.dumps({"reservedCPUs": "1"}),
        keys.SYSTEM_QOS_RESOURCE: json.dumps({"cpuset": "2"}),
        keys.POD_CPU_ALLOCS: json.dumps(
            [{"namespace": "a", "name": "b", "uid": "u", "cpuset": "3", "managedByKubelet": True}]
        ),
    }
    found = hardware(topology=topology_document("n1", annotations=annotations))
    reasons = {cpu.id: cpu.reserved for core in found.zones[0].cores for cpu in core.cpus if cpu.reserved}
    assert reasons == {
        0: "reserved by the kubelet",
        1: "reserved on the node",
        2: "reserved for system QoS",
        3: "kubelet gave it to a/b",
    }
    assert (found.zones[0].cores_free, found.zones[0].cpus_free) == (0, 4)


def test_an_amount_reserved_on_the_node_becomes_cpus() -> None:
    meta = ObjectMeta(name="n1", annotations={keys.NODE_RESERVATION: json.dumps({"resources": {"cpu": "2"}})})
    found = hardware(topology=topology_document("n1"), node=Node(metadata=meta))
    assert sum(zone.cpus_free for zone in found.zones) == 14


def test_shares_and_virtual_functions_of_devices_have_their_pods() -> None:
    first = pod("first", Allocation(devices=(AllocatedDevice(type="gpu", minor=3, amounts={RATIO: 50}),)))
    rdma = AllocatedDevice(
        type="rdma",
        minor=0,
        amounts={"koordinator.sh/rdma": 1},
        virtual_functions=(VirtualFunction(0, "0000:a0:00.2"),),
    )
    memory = AllocatedDevice(type="gpu", minor=3, amounts={"koordinator.sh/gpu-memory": GPU_MEMORY // 4})
    second = pod("second", Allocation(devices=(memory, rdma)))
    found = hardware(first, second, topology=topology_document("n1"), device=device_document("n1"))
    cards = {(card.type, card.minor): card for card in found.cards}
    assert [(share.uid, share.percent) for share in cards["gpu", 3].shares] == [("first", 50), ("second", 25)]
    assert (cards["gpu", 3].percent_used, cards["gpu", 3].percent_free) == (75, 25)
    functions = {function.bus_id: function.owners for function in cards["rdma", 0].functions}
    assert functions["0000:a0:00.2"] == ("second",)
    assert sum(bool(owners) for owners in functions.values()) == 1
    assert [switch.id for switch in found.zones[0].switches] == ["pcie-0", "pcie-1"]
    assert gpu_totals(found.cards) == (8, 75, 25)


def test_an_unhealthy_card_gives_nothing_and_keeps_its_pods() -> None:
    document = device_document("n1", gpus=2)
    document["spec"]["devices"][0]["health"] = False
    holder = pod("p", Allocation(devices=(AllocatedDevice(type="gpu", minor=0, amounts={RATIO: 20}),)))
    cards, _ = cards_of(document, {"p": holder})
    assert [(card.minor, card.state, card.percent_free) for card in cards if card.type == "gpu"] == [
        (0, "unhealthy", 0),
        (1, "healthy", 100),
    ]
    assert gpu_totals(cards) == (1, 20, 0)


def test_a_card_that_vanished_is_shown_as_long_as_a_pod_holds_it() -> None:
    holder = pod("p", Allocation(devices=(AllocatedDevice(type="gpu", minor=5, id="GPU-x", amounts={RATIO: 100}),)))
    found = hardware(holder)
    assert [(card.minor, card.state, card.id) for card in found.cards] == [(5, "gone", "GPU-x")]
    assert found.sockets[0].id == UNKNOWN


def test_what_is_held_twice_is_reported_with_the_names_of_the_pods() -> None:
    one, two = pod("one", Allocation(cpuset="2-3")), pod("two", Allocation(cpuset="3"))
    found = hardware(one, two, topology=topology_document("n1"))
    assert found.conflicts == ("CPU 3 is held by shop/one, shop/two",)
    assert next(cpu.owners for core in found.zones[0].cores for cpu in core.cpus if cpu.id == 3) == ("one", "two")


def test_malformed_parts_are_ignored_each_with_its_reason() -> None:
    topology = topology_document("n1", annotations={keys.SYSTEM_QOS_RESOURCE: "{", keys.POD_CPU_ALLOCS: '[{"uid": 1}]'})
    topology["zones"].append({"name": "socket-7", "type": "Node"})
    device = device_document("n1", gpus=2)
    device["spec"]["devices"] += [{"type": "gpu", "minor": 1}, {"type": "gpu", "minor": -2}, "card", {"minor": 1}]
    found = hardware(topology=topology, device=device)
    assert len(found.zones[0].cores) == 4
    assert len(found.cards) == 3
    assert len(found.problems) == 7
    assert any("zones[2]: must be of type Node" in sentence for sentence in found.problems)
    assert any("spec.devices[3].minor: must be stated once for each type, got 1" in each for each in found.problems)


def test_a_malformed_cpu_topology_leaves_the_devices() -> None:
    for text in ("{", '{"detail": [{"id": 0}]}', '{"detail": [{"id": 0, "core": 0, "socket": 0, "node": 9999}]}'):
        topology = topology_document("n1", annotations={keys.CPU_TOPOLOGY: text})
        found = hardware(topology=topology, device=device_document("n1"))
        assert not any(zone.cores for zone in found.zones)
        assert len(found.cards) == 12
        assert keys.CPU_TOPOLOGY in found.problems[0]
